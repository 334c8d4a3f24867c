"""The objective, the step and the run."""

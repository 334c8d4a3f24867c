"""A page on this machine alone: drop a picture, see what a model finds, or two models side by side. Needs the extra `ui`."""

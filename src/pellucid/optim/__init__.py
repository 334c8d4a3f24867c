"""Optimizers, schedules, averaging, gradients."""

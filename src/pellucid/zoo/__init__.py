"""Trained weights that ship, and every model by name."""

from .table import shipped_table
from .weights import Card, create, is_untrained, load_weights, make_task, open_model, read_pickle, save_weights, shipped_names

__all__ = [
    "Card",
    "create",
    "is_untrained",
    "load_weights",
    "make_task",
    "open_model",
    "read_pickle",
    "save_weights",
    "shipped_names",
    "shipped_table",
]

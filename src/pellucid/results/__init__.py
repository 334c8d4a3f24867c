"""What was found on one picture, as a user holds it: views of every kind of shape, pictures and files."""

from .result import Result
from .views import BoxesView, KeypointsView, MasksView, RBoxesView

__all__ = ["BoxesView", "KeypointsView", "MasksView", "RBoxesView", "Result"]

"""What was found on one picture, as a user holds it: views of every kind of shape, pictures and files."""

from .preview import label_sheet
from .result import Result
from .views import BoxesView, KeypointsView, MasksView, RBoxesView

__all__ = ["BoxesView", "KeypointsView", "MasksView", "RBoxesView", "Result", "label_sheet"]

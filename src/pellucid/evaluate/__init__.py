"""Scores: COCO and rotated average precision, confusion matrix, threshold curves; one pass scores both decode paths."""

from .coco import METRICS, CocoMetric
from .confusion import ConfusionMatrix, CurveMeter, Curves
from .run import EvaluateSettings, PathScores, Scores, evaluate
from .tiled import evaluate_tiles

__all__ = [
    "METRICS",
    "CocoMetric",
    "ConfusionMatrix",
    "CurveMeter",
    "Curves",
    "EvaluateSettings",
    "PathScores",
    "Scores",
    "evaluate",
    "evaluate_tiles",
]

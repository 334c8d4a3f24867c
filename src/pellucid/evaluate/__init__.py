"""Scores: COCO average precision, confusion matrix, threshold curves; `evaluate` makes one pass and scores both decode paths."""

from .coco import METRICS, CocoMetric
from .confusion import ConfusionMatrix, CurveMeter, Curves
from .run import EvaluateSettings, PathScores, Scores, evaluate

__all__ = ["METRICS", "CocoMetric", "ConfusionMatrix", "CurveMeter", "Curves", "EvaluateSettings", "PathScores", "Scores", "evaluate"]

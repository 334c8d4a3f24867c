"""Suppression for the one-to-many branch, by the overlap that the task names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..types import Dense
from .topk import Rows, dense_values

if TYPE_CHECKING:
    from ..tasks.base import Task

CANDIDATES = 30_000  # of one image; beyond it the best are taken


def suppress(dense: Dense, task: Task, conf: float = 0.001, iou: float = 0.7, limit: int = 300, agnostic: bool = False) -> list[Rows]:
    """Best boxes of each image that overlap no better one of their class by more than `iou` (of any class if `agnostic`).

    An anchor stands for every class whose probability is at least `conf`. Boxes that are not finite, or have no area, are left out.
    """
    values = dense_values(dense, task)
    usable = sound(values["boxes"])  # (B, A)
    chosen = []
    for image, logits in enumerate(dense.outputs["cls"]):  # (A, C)
        anchors, labels, scores = _candidates(logits.float(), usable[image], conf)
        groups = torch.zeros_like(labels) if agnostic else labels
        found = {key: value[image, anchors] for key, value in values.items()}
        keep = _survivors(task, found, scores, groups, iou, limit)
        chosen.append(Rows({key: value[keep] for key, value in found.items()}, scores[keep], labels[keep]))
    return chosen


def sound(boxes: Tensor) -> Tensor:
    """Which boxes (..., 4) are finite and have an area."""
    width, height = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return (width > 0) & (width < math.inf) & (height > 0) & (height < math.inf)  # a difference of what is not finite is not, or is nan


def _candidates(logits: Tensor, usable: Tensor, conf: float) -> tuple[Tensor, Tensor, Tensor]:
    """Anchors, labels and scores of the (anchor, class) pairs at or above `conf`, best first, ties in anchor order."""
    usable = usable & ~(logits.amax(-1) < _logit(conf))
    anchors = usable.nonzero().squeeze(1)
    logits = logits[anchors]
    rows, labels = ((logits >= _logit(conf)) & (logits > -math.inf)).nonzero(as_tuple=True)
    scores, order = logits[rows, labels].sigmoid().sort(descending=True, stable=True)
    order = order[:CANDIDATES]
    return anchors[rows[order]], labels[order], scores[:CANDIDATES]


def _survivors(task: Task, found: dict[str, Tensor], scores: Tensor, groups: Tensor, iou: float, limit: int) -> Tensor:
    """The first `limit` survivors. The better ones alone decide about a candidate, so a beginning that yields enough is enough."""
    count = 2 * limit
    while True:
        shapes = {key: value[:count] for key, value in found.items()}
        keep = task.nms(shapes, scores[:count], groups[:count], iou)[:limit]
        if len(keep) == limit or count >= len(scores):
            return keep
        count *= 4


def _logit(probability: float) -> float:
    if probability <= 0:
        return -math.inf
    return math.inf if probability >= 1 else math.log(probability / (1 - probability))

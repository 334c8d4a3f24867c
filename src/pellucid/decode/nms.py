"""Suppression for the one-to-many branch, on the bounds of any shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torchvision.ops import batched_nms

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
    for image, logits in enumerate(dense.outputs["cls"].float()):  # (A, C)
        anchors, labels, scores = _candidates(logits.masked_fill(~usable[image, :, None], -math.inf), conf)
        boxes = values["boxes"][image, anchors].double()  # float64 keeps the class offsets of batched_nms exact
        groups = torch.zeros_like(labels) if agnostic else labels
        keep = batched_nms(boxes, scores.double(), groups, iou)[:limit]
        rows = {key: value[image, anchors[keep]] for key, value in values.items()}
        chosen.append(Rows(rows, scores[keep], labels[keep]))
    return chosen


def sound(boxes: Tensor) -> Tensor:
    """Which boxes (..., 4) are finite and have an area."""
    return boxes.isfinite().all(-1) & (boxes[..., 2:] > boxes[..., :2]).all(-1)


def _candidates(logits: Tensor, conf: float) -> tuple[Tensor, Tensor, Tensor]:
    """Anchors, labels and scores of the (anchor, class) pairs at or above `conf`, best first, ties in anchor order."""
    scores = logits.sigmoid()
    anchors, labels = ((scores >= conf) & (logits > -math.inf)).nonzero(as_tuple=True)
    scores, order = scores[anchors, labels].sort(descending=True, stable=True)
    order = order[:CANDIDATES]
    return anchors[order], labels[order], scores[:CANDIDATES]

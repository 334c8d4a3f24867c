"""Greedy suppression of candidates that overlap a better one of their group."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torchvision.ops import batched_nms


def box_nms(shapes: Mapping[str, Tensor], scores: Tensor, groups: Tensor, iou: float) -> Tensor:
    """Positions of the survivors among n candidates, best first: no pair of one group overlaps by more than `iou`.

    `shapes["boxes"]` (n, 4) xyxy; scores (n,); groups (n,) int64. Ties keep the order given.
    """
    boxes = shapes["boxes"].double()  # float64 keeps the group offsets of batched_nms exact
    if len(boxes):
        boxes = boxes - boxes.min().clamp(max=0)  # they part the groups only where no coordinate is below 0
    return batched_nms(boxes, scores.double(), groups, iou).sort().values

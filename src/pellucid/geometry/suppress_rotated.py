"""Greedy suppression of rotated boxes by their exact overlap, block after block, so that memory does not grow with the candidates."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .rboxes import pairwise_rbox_iou

BLOCK = 512  # candidates settled at a time
SPREAD = 4.0  # how far groups are moved apart, in extents of all boxes


def rotated_nms(shapes: Mapping[str, Tensor], scores: Tensor, groups: Tensor, iou: float) -> Tensor:
    """Positions of the survivors among n candidates, best first: no pair of one group overlaps by more than `iou`.

    `shapes["rboxes"]` (n, 5); scores (n,); groups (n,) int64. Ties keep the order given.
    """
    order = scores.argsort(descending=True, stable=True)
    rboxes = _apart(shapes["rboxes"].double(), groups)[order]
    kept = torch.zeros(0, dtype=torch.int64, device=scores.device)
    for start in range(0, len(order), BLOCK):
        block = torch.arange(start, min(start + BLOCK, len(order)), device=scores.device)
        if len(kept):
            block = block[~_hit(rboxes[block], rboxes[kept], iou)]
        kept = torch.cat((kept, block[_settle(pairwise_rbox_iou(rboxes[block], rboxes[block]) > iou)]))
    return order[kept]


def _apart(rboxes: Tensor, groups: Tensor) -> Tensor:
    """The boxes with each group moved to a place of its own, where it meets no other."""
    if not len(rboxes):
        return rboxes
    extent = rboxes[:, :4].abs().amax().clamp(min=1)
    moved = rboxes[:, :1] + groups[:, None] * (SPREAD * extent)
    return torch.cat((moved, rboxes[:, 1:]), 1)


def _hit(rboxes: Tensor, kept: Tensor, iou: float) -> Tensor:
    """Which boxes (n,) overlap one of the kept by more than `iou`."""
    hit = torch.zeros(len(rboxes), dtype=torch.bool, device=rboxes.device)
    for part in kept.split(4 * BLOCK):
        hit |= (pairwise_rbox_iou(rboxes, part) > iou).any(1)
    return hit


def _settle(overlaps: Tensor) -> Tensor:
    """Which of n candidates, best first, survive, given who overlaps whom (n, n) bool."""
    later = overlaps.triu(1).cpu()
    alive = torch.ones(len(later), dtype=torch.bool)
    for place, row in enumerate(later.unbind(0)):
        if alive[place]:
            alive &= ~row
    return alive.to(overlaps.device)

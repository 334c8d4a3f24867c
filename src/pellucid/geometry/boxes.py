"""Axis-aligned boxes, xyxy in pixels, and the IoU family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..numerics.islands import full
from .affine import transform_points


@dataclass(frozen=True)
class Boxes:
    """n boxes: `data` (n, 4) float32, x1 y1 x2 y2 in pixels of one frame."""

    data: Tensor
    extent: ClassVar[bool] = False

    def __len__(self) -> int:
        return self.data.shape[0]

    def __getitem__(self, index: Tensor | slice) -> Boxes:
        return Boxes(self.data[index])

    def warp(self, matrix: Tensor) -> Boxes:
        """The bounding boxes of the four corners after `matrix`."""
        x1, y1, x2, y2 = self.data.unbind(-1)
        corners = torch.stack((x1, y1, x2, y1, x2, y2, x1, y2), -1).reshape(-1, 4, 2)
        moved = transform_points(matrix, corners)  # (n, 4, 2)
        return Boxes(torch.cat((moved.amin(1), moved.amax(1)), -1))

    def clip(self, height: int, width: int) -> Boxes:
        limit = self.data.new_tensor((width, height, width, height))
        return Boxes(self.data.clamp(min=0).minimum(limit))

    def bounds(self) -> Tensor:
        return self.data

    def visible(self, height: int, width: int) -> Tensor:
        return box_area(self.clip(height, width).data) / box_area(self.data).clamp(min=1e-9)

    def to(self, device: torch.device | str) -> Boxes:
        return Boxes(self.data.to(device))

    @classmethod
    def cat(cls, parts: Sequence[Boxes]) -> Boxes:
        return Boxes(torch.cat([part.data for part in parts]))

    @classmethod
    def empty(cls) -> Boxes:
        return cls(torch.zeros(0, 4))


def box_area(boxes: Tensor) -> Tensor:
    """Areas (...,) of xyxy boxes (..., 4); an inverted box has area 0."""
    boxes = full(boxes)
    w, h = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).unbind(-1)
    return w * h


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """IoU in [0, 1] of boxes (..., 4) that broadcast against each other; an inverted or empty box has IoU 0."""
    intersection = _intersection(a, b)
    return intersection / (box_area(a) + box_area(b) - intersection).clamp(min=1e-9)


def pairwise_iou(a: Tensor, b: Tensor) -> Tensor:
    """IoU (n, m) of every box of `a` (n, 4) with every box of `b` (m, 4)."""
    return box_iou(a[:, None], b[None])


def box_ciou(predicted: Tensor, true: Tensor, eps: float = 1e-7) -> Tensor:
    """Complete IoU in (-2, 1] of broadcasting xyxy boxes (..., 4); the aspect weight carries no gradient (arXiv 1911.08287, Eq. 8-11)."""
    predicted, true = full(predicted), full(true)
    w, h = (predicted[..., 2:] - predicted[..., :2]).unbind(-1)
    true_w, true_h = (true[..., 2:] - true[..., :2]).unbind(-1)
    intersection = _intersection(predicted, true)
    h, true_h = h + eps, true_h + eps  # the aspect term divides by heights
    iou = intersection / (w * h + true_w * true_h - intersection + eps)
    hull = torch.maximum(predicted[..., 2:], true[..., 2:]) - torch.minimum(predicted[..., :2], true[..., :2])
    diagonal = hull.square().sum(-1) + eps
    between = (predicted[..., :2] + predicted[..., 2:] - true[..., :2] - true[..., 2:]).square().sum(-1) / 4
    aspect = (4 / math.pi**2) * (torch.atan2(true_w, true_h) - torch.atan2(w, h)).square()
    with torch.no_grad():
        weight = aspect / (aspect - iou + (1 + eps))
    return iou - between / diagonal - weight * aspect


def _intersection(a: Tensor, b: Tensor) -> Tensor:
    a, b = full(a), full(b)
    low = torch.maximum(a[..., :2], b[..., :2])
    high = torch.minimum(a[..., 2:], b[..., 2:])
    w, h = (high - low).clamp(min=0).unbind(-1)
    return w * h  # not prod(): its backward counts zeros on the host

"""Losses of axis-aligned boxes on gathered pairs; elementwise, without gains or reduction."""

from __future__ import annotations

import torch
from torch import Tensor

from ..geometry.boxes import box_ciou
from ..numerics.islands import full
from ..types import Pairs


def ciou_loss(pairs: Pairs) -> Tensor:
    """1 - CIoU, (B, P) (arXiv 1911.08287, Eq. 10)."""
    return 1 - box_ciou(pairs.shapes["boxes"], pairs.truth["boxes"])


def distance_l1(pairs: Pairs) -> Tensor:
    """Mean over the four sides of |d - d*| in units of the image: left and right over its width, top and bottom over its height, (B, P)."""
    height, width = pairs.size
    error = _error(pairs)
    return ((error[..., 0] + error[..., 2]) / width + (error[..., 1] + error[..., 3]) / height) / 4


def stride_l1(pairs: Pairs) -> Tensor:
    """Mean over the four sides of |d - d*| in strides of the anchor, (B, P)."""
    return _error(pairs).mean(-1) / pairs.strides


def _error(pairs: Pairs) -> Tensor:
    """|d - d*| of the four sides in pixels, (B, P, 4)."""
    low, high = pairs.truth["boxes"].chunk(2, -1)
    target = torch.cat((pairs.points - low, high - pairs.points), -1)
    return (full(pairs.outputs["box"]) * pairs.strides[..., None] - target).abs()

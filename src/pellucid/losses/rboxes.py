"""Losses of rotated boxes on gathered pairs; elementwise, without gains or reduction."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..geometry.rboxes import probiou
from ..numerics.islands import full
from ..types import Pairs

FLOOR = 0.01  # added to the variances of both boxes, in squared strides
LAMBDA = 3.0  # of Eq. 15: how fast the angle of long boxes counts less


def probiou_loss(pairs: Pairs) -> Tensor:
    """1 - ProbIoU of boxes measured in strides of the anchor, (B, P) (arXiv 2106.06072, L1)."""
    return 1 - probiou(_in_strides(pairs.shapes["rboxes"], pairs.strides), _in_strides(pairs.truth["rboxes"], pairs.strides), FLOOR)


def rotated_l1(pairs: Pairs) -> Tensor:
    """Mean over the four sides of |d - d*| in units of the image, d* seen from the anchor in the true box's own frame, (B, P)."""
    return _image_mean(_distances(pairs) - _seen_from(pairs, pairs.truth["rboxes"][..., 4], swap=None), pairs)


def rotated_stride_l1(pairs: Pairs) -> Tensor:
    """As `rotated_l1`, in strides of the anchor, (B, P)."""
    error = _distances(pairs) - _seen_from(pairs, pairs.truth["rboxes"][..., 4], swap=None)
    return error.abs().mean(-1) / pairs.strides


def nearest_l1(pairs: Pairs) -> Tensor:
    """As `rotated_l1`, with the true box written in that of its four equal forms whose angle is nearest the predicted one, (B, P)."""
    return _image_mean(_distances(pairs) - _nearest(pairs), pairs)


def nearest_stride_l1(pairs: Pairs) -> Tensor:
    """As `nearest_l1`, in strides of the anchor, (B, P)."""
    return (_distances(pairs) - _nearest(pairs)).abs().mean(-1) / pairs.strides


def angle_loss(pairs: Pairs) -> Tensor:
    """exp(-ln^2(w*/h*) / 9) sin^2(2 (theta - theta*)), (B, P): an error of pi or pi/2 costs nothing (arXiv 2606.03748, Eq. 14-15)."""
    w, h = pairs.truth["rboxes"][..., 2:4].clamp(min=1e-3).unbind(-1)
    error = full(pairs.outputs["angle"][..., 0]) - pairs.truth["rboxes"][..., 4]
    error = error - torch.round(error.detach() / math.pi) * math.pi
    return torch.exp(-(w / h).log().square() / LAMBDA**2) * (2 * error).sin().square()


def _in_strides(rboxes: Tensor, strides: Tensor) -> Tensor:
    return torch.cat((rboxes[..., :4] / strides[..., None], rboxes[..., 4:]), -1)


def _distances(pairs: Pairs) -> Tensor:
    """Predicted l, t, r, b in pixels, (B, P, 4)."""
    return full(pairs.outputs["box"]) * pairs.strides[..., None]


def _nearest(pairs: Pairs) -> Tensor:
    theta = pairs.truth["rboxes"][..., 4]
    quarters = torch.round((full(pairs.outputs["angle"][..., 0].detach()) - theta) / (math.pi / 2))
    return _seen_from(pairs, theta + quarters * (math.pi / 2), swap=quarters.remainder(2) > 0.5)


def _seen_from(pairs: Pairs, theta: Tensor, swap: Tensor | None) -> Tensor:
    """l, t, r, b in pixels of the true box from the anchor in a frame turned by `theta` (B, P), its sides exchanged where `swap`."""
    offset = pairs.truth["rboxes"][..., :2] - pairs.points
    c, s = theta.cos(), theta.sin()
    u, v = offset[..., 0] * c + offset[..., 1] * s, offset[..., 1] * c - offset[..., 0] * s
    w, h = pairs.truth["rboxes"][..., 2], pairs.truth["rboxes"][..., 3]
    if swap is not None:
        w, h = torch.where(swap, h, w), torch.where(swap, w, h)
    return torch.stack((w / 2 - u, h / 2 - v, w / 2 + u, h / 2 + v), -1)


def _image_mean(error: Tensor, pairs: Pairs) -> Tensor:
    height, width = pairs.size
    error = error.abs()
    return ((error[..., 0] + error[..., 2]) / width + (error[..., 1] + error[..., 3]) / height) / 4

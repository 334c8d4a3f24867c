"""Rotated boxes: centre, sides and angle; their corners, ProbIoU and exact overlap.

A box is (cx, cy, w, h, theta): pixels of one frame, and radians from +x to +y of the side w. In canonical form w >= h and theta lies in
[-pi/4, 3 pi/4); a square's theta lies in [-pi/4, pi/4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..numerics.islands import full

PAIRS = 1 << 18  # pairs of boxes whose polygons are clipped in one pass
EPS = 1e-7


@dataclass(frozen=True)
class RBoxes:
    """n rotated boxes: `data` (n, 5) float32, cx cy w h in pixels, theta in radians."""

    data: Tensor
    extent: ClassVar[bool] = True

    def __len__(self) -> int:
        return self.data.shape[0]

    def __getitem__(self, index: Tensor | slice) -> RBoxes:
        return RBoxes(self.data[index])

    def corners(self) -> Tensor:
        """(n, 4, 2), from the corner at (-w/2, -h/2), on in the direction of w."""
        return rbox_corners(self.data)

    def warp(self, matrix: Tensor) -> RBoxes:
        """Boxes with the moved centre and long side, and the area of the moved box; exact for similarities and mirrors."""
        turned = self.data.double()
        matrix = matrix.to(turned)
        centre = turned[:, :2] @ matrix[:2, :2].T + matrix[:2, 2]
        along, across = (side @ matrix[:2, :2].T for side in _sides(turned))  # (n, 2)
        swap = (across.square().sum(-1) > along.square().sum(-1))[:, None]
        along, across = torch.where(swap, across, along), torch.where(swap, along, across)
        length = along.square().sum(-1).sqrt()
        area = (along[:, 0] * across[:, 1] - along[:, 1] * across[:, 0]).abs()
        parts = (length, area / length.clamp(min=1e-12), torch.atan2(along[:, 1], along[:, 0]))
        return RBoxes(canonical(torch.cat((centre, torch.stack(parts, -1)), -1).to(self.data.dtype)))

    def clip(self, height: int, width: int) -> RBoxes:
        """The same boxes: a cut would change angle and sides; `visible` says how much is left."""
        return self

    def visible(self, height: int, width: int) -> Tensor:
        """Share (n,) in [0, 1] of each box's area that lies inside [0, width] x [0, height]."""
        frame = self.data.new_tensor((width / 2, height / 2, width, height, 0)).double()
        inside = rbox_intersection(self.data.double(), frame)
        return (inside / rbox_area(self.data.double()).clamp(min=1e-12)).clamp(max=1).to(self.data.dtype)

    def bounds(self) -> Tensor:
        return rbox_bounds(self.data)

    def to(self, device: torch.device | str) -> RBoxes:
        return RBoxes(self.data.to(device))

    @classmethod
    def from_corners(cls, corners: Tensor) -> RBoxes:
        """Canonical boxes of four corners (n, 4, 2) in any order: the rectangle of least area around them."""
        return cls(enclosing(corners.double()).to(corners.dtype))

    @classmethod
    def cat(cls, parts: Sequence[RBoxes]) -> RBoxes:
        return cls(torch.cat([part.data for part in parts]))

    @classmethod
    def empty(cls) -> RBoxes:
        return cls(torch.zeros(0, 5))


def canonical(rboxes: Tensor) -> Tensor:
    """The same rectangles (..., 5) with w >= h and theta in [-pi/4, 3 pi/4), of a square in [-pi/4, pi/4)."""
    centre, w, h, theta = rboxes[..., :2], rboxes[..., 2], rboxes[..., 3], rboxes[..., 4]
    theta = torch.where(w < h, theta + math.pi / 2, theta)
    period = math.pi - (w == h).to(theta.dtype) * (math.pi / 2)
    theta = theta - period * torch.floor((theta + math.pi / 4) / period)
    theta = torch.where(theta >= period - math.pi / 4, theta - period, theta).clamp(min=-math.pi / 4)  # what rounding moved onto the end
    return torch.cat((centre, torch.stack((torch.maximum(w, h), torch.minimum(w, h), theta), -1)), -1)


def _sides(rboxes: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors (..., 2) along w and along h."""
    w, h, theta = rboxes[..., 2], rboxes[..., 3], rboxes[..., 4]
    c, s = theta.cos(), theta.sin()
    return torch.stack((w * c, w * s), -1), torch.stack((-h * s, h * c), -1)


def rbox_corners(rboxes: Tensor) -> Tensor:
    """Corners (..., 4, 2) of boxes (..., 5), in the winding of the axes (clockwise on screen)."""
    along, across = _sides(rboxes)
    centre = rboxes[..., :2]
    first, second = (along + across) / 2, (along - across) / 2
    return torch.stack((centre - first, centre + second, centre + first, centre - second), -2)


def rbox_bounds(rboxes: Tensor) -> Tensor:
    """Axis-aligned bounding boxes (..., 4) xyxy; a box with a side that is not positive gets its centre, without area."""
    along, across = _sides(rboxes)
    half = (along.abs() + across.abs()) / 2
    half = torch.where((rboxes[..., 2:4] > 0).all(-1, keepdim=True), half, 0.0)
    return torch.cat((rboxes[..., :2] - half, rboxes[..., :2] + half), -1)


def rbox_area(rboxes: Tensor) -> Tensor:
    """Areas (...,); a box with a negative side has area 0."""
    return rboxes[..., 2].clamp(min=0) * rboxes[..., 3].clamp(min=0)


def enclosing(points: Tensor) -> Tensor:
    """Canonical rectangles (n, 5) of least area around four points each (n, 4, 2): flush with a line through two of them."""
    first, second = zip(*((i, j) for i in range(4) for j in range(i)), strict=True)
    line = points[:, list(first)] - points[:, list(second)]  # (n, 6, 2)
    length = line.square().sum(-1, keepdim=True).sqrt()
    axis = torch.where(length > 0, line / length.clamp(min=1e-12), line.new_tensor((1.0, 0.0)))
    origin = points.mean(1, keepdim=True)
    moved = points - origin
    u = moved @ axis.mT  # (n, 4, 6): coordinates along each line
    v = moved @ torch.stack((-axis[..., 1], axis[..., 0]), -1).mT
    w, h = u.amax(1) - u.amin(1), v.amax(1) - v.amin(1)  # (n, 6)
    best = (w * h).argmin(1, keepdim=True)
    w, h, mid_u, mid_v = (part.gather(1, best)[:, 0] for part in (w, h, (u.amax(1) + u.amin(1)) / 2, (v.amax(1) + v.amin(1)) / 2))
    c, s = axis.gather(1, best[..., None].expand(-1, -1, 2))[:, 0].unbind(-1)
    centre = origin[:, 0] + torch.stack((mid_u * c - mid_v * s, mid_u * s + mid_v * c), -1)
    return canonical(torch.cat((centre, torch.stack((w, h, torch.atan2(s, c)), -1)), -1))


def probiou(a: Tensor, b: Tensor, floor: float = 0.0) -> Tensor:
    """ProbIoU in [0, 1] of boxes (..., 5) that broadcast: 1 - Hellinger distance of Gaussians of variance w^2/12 + floor, h^2/12 + floor.

    Every sum is of terms that are not negative, so that nothing cancels in float32 (arXiv 2106.06072, Eq. 2-8).
    """
    a, b = full(a), full(b)
    a1, b1 = _variances(a, floor)
    a2, b2 = _variances(b, floor)
    d1, d2 = a1 * b1, a2 * b2
    turn = a[..., 4] - b[..., 4]
    cos2, sin2 = turn.cos().square(), turn.sin().square()
    det = d1 + d2 + cos2 * (a1 * b2 + b1 * a2) + sin2 * (a1 * a2 + b1 * b2)  # of the summed covariances
    far = _far(a, a1, b1, a[..., :2] - b[..., :2]) + _far(b, a2, b2, a[..., :2] - b[..., :2])
    a1, b1, a2, b2 = a1.sqrt(), b1.sqrt(), a2.sqrt(), b2.sqrt()
    geometric = 4 * a1 * b1 * a2 * b2
    over = (a1 * b1 - a2 * b2).square() + cos2 * (a1 * b2 - b1 * a2).square() + sin2 * (a1 * a2 - b1 * b2).square()  # det - geometric
    distance = far / (det + EPS) / 4 + torch.log1p((over - EPS) / (geometric + EPS)) / 2
    return 1 - (EPS - torch.expm1(-distance.clamp(EPS, 100))).sqrt()


def _variances(rboxes: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Variances along w and h; sides of less than a thousandth count as that."""
    w, h = rboxes[..., 2].square().clamp(min=1e-6) / 12 + floor, rboxes[..., 3].square().clamp(min=1e-6) / 12 + floor
    return w, h


def _far(rboxes: Tensor, along: Tensor, across: Tensor, offset: Tensor) -> Tensor:
    """`offset` (..., 2) under the adjugate of a box's covariance."""
    c, s = rboxes[..., 4].cos(), rboxes[..., 4].sin()
    u, v = offset[..., 0] * c + offset[..., 1] * s, offset[..., 1] * c - offset[..., 0] * s
    return across * u.square() + along * v.square()


def rbox_intersection(a: Tensor, b: Tensor) -> Tensor:
    """Exact area shared by boxes (..., 5) that broadcast; 0 where a side is not positive."""
    corners = rbox_corners(a) - b[..., None, :2]  # (..., 4, 2)
    c, s = b[..., 4].cos()[..., None], b[..., 4].sin()[..., None]
    x, y = corners[..., 0] * c + corners[..., 1] * s, corners[..., 1] * c - corners[..., 0] * s
    w, h = b[..., 2].clamp(min=0)[..., None], b[..., 3].clamp(min=0)[..., None]
    area = area_in_frame(x + w / 2, y + h / 2, w, h).sum(-1)
    return torch.where((a[..., 2] > 0) & (a[..., 3] > 0), area.clamp(min=0), 0.0)


def area_in_frame(x: Tensor, y: Tensor, width: Tensor, height: Tensor) -> Tensor:
    """What each edge of closed polygons (..., p) adds to their area inside [0, width] x [0, height]; clockwise on screen counts positive.

    The area is the integral over x of the clamped height of the boundary: each edge adds its own part, and no vertex is ever made.
    """
    x2, y2 = x.roll(-1, -1), y.roll(-1, -1)
    start, end = torch.minimum(x.clamp(min=0), width), torch.minimum(x2.clamp(min=0), width)
    run = torch.where(x == x2, 1.0, x2 - x)
    y_start, y_end = y + (start - x) / run * (y2 - y), y2 - (x2 - end) / run * (y2 - y)
    return (start - end) * _mean_clamped(y_start, y_end, height)


def _mean_clamped(first: Tensor, last: Tensor, top: Tensor) -> Tensor:
    """Mean of clamp(y, 0, top) for y from `first` to `last` in a straight line."""
    low, high = torch.minimum(first, last), torch.maximum(first, last)
    cut_low, cut_high = torch.minimum(low.clamp(min=0), top), torch.minimum(high.clamp(min=0), top)
    rise = torch.where(high > low, high - low, 1.0)
    above = (high - torch.maximum(low, top)).clamp(min=0)
    sloped = ((cut_high - cut_low) * (cut_low + cut_high) / 2 + above * top) / rise
    return torch.where(high > low, sloped, cut_low)


def rbox_iou(a: Tensor, b: Tensor) -> Tensor:
    """Exact IoU in [0, 1] of boxes (..., 5) that broadcast against each other."""
    shared = rbox_intersection(a, b)
    return (shared / (rbox_area(a) + rbox_area(b) - shared).clamp(min=1e-9)).clamp(max=1)


def pairwise_rbox_iou(a: Tensor, b: Tensor, of_first: bool = False) -> Tensor:
    """IoU (n, m) of every box of `a` (n, 5) with every box of `b` (m, 5), or the shared area over that of `a`; memory is bounded.

    Only pairs whose bounding boxes meet are clipped.
    """
    result = a.new_zeros(len(a), len(b))
    step = max(1, PAIRS // max(1, len(b)))
    bounds_a, bounds_b = rbox_bounds(a), rbox_bounds(b)
    for start in range(0, len(a), step):
        part = bounds_a[start : start + step, None]
        meet = ((part[..., :2] < bounds_b[..., 2:]) & (bounds_b[..., :2] < part[..., 2:])).all(-1)
        rows, columns = meet.nonzero(as_tuple=True)
        rows = rows + start
        if of_first:
            value = (rbox_intersection(a[rows], b[columns]) / rbox_area(a[rows]).clamp(min=1e-9)).clamp(max=1)
        else:
            value = rbox_iou(a[rows], b[columns])
        result[rows, columns] = value
    return result

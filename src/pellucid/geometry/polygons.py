"""Objects as polygons: several parts, holes, cut exactly at the frame, filled where a cell's centre lies inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from . import rings as flat
from .affine import transform_points
from .rboxes import RBoxes
from .rle import Rle
from .shape import Shape
from .tracing import trace

Part = Sequence | np.ndarray  # points (p, 2), or x y x y ...


@dataclass(frozen=True)
class Polygons:
    """n objects in pixels of one frame, filled by the nonzero winding rule.

    Object i has the rings objects[i] to objects[i + 1], ring j the points rings[j] to rings[j + 1]. Outer rings run from +x to +y
    (clockwise on screen), holes the other way; parts of one object may overlap. An object may have no ring.
    """

    points: Tensor  # (m, 2) float32
    rings: Tensor  # (r + 1,) int64
    objects: Tensor  # (n + 1,) int64
    extent: ClassVar[bool] = True

    @property
    def data(self) -> Tensor:
        return self.points

    def __len__(self) -> int:
        return len(self.objects) - 1

    def __getitem__(self, index: Tensor | slice) -> Polygons:
        rings, objects = flat.members(self.objects.numpy(), torch.arange(len(self))[index].reshape(-1).numpy())
        at, starts = flat.members(self.rings.numpy(), rings)
        return Polygons(self.points[torch.from_numpy(at)], torch.from_numpy(starts), torch.from_numpy(objects))

    def warp(self, matrix: Tensor) -> Polygons:
        """Exact for every affine matrix; after a mirror the rings are run the other way, so that outer rings stay outer."""
        points = transform_points(matrix, self.points)
        if float(matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0]) < 0:
            points = torch.from_numpy(flat.reverse(points.numpy(), self.rings.numpy()))
        return Polygons(points, self.rings, self.objects)

    def clip(self, height: int, width: int) -> Polygons:
        """The exact intersection with the frame; rings of which nothing is left are gone, their objects stay."""
        low, high = (self.points.amin(), self.points.amax(0)) if len(self.points) else (0, (0, 0))
        if low >= 0 and high[0] <= width and high[1] <= height:
            return self
        points, rings, own = flat.cut_apart(self._points(), self.rings.numpy(), (0, 0, width, height))
        return _from_arrays(*_without_flat(points, rings, np.searchsorted(own, self.objects.numpy())))

    def bounds(self) -> Tensor:
        """(n, 4) xyxy around all rings; zeros for an object without."""
        bounds = self.points.new_zeros(len(self), 4)
        own = torch.from_numpy(flat.owner(self.rings[self.objects].numpy()))[:, None].expand(-1, 2)
        bounds[:, :2].scatter_reduce_(0, own, self.points, "amin", include_self=False)
        bounds[:, 2:].scatter_reduce_(0, own, self.points, "amax", include_self=False)
        return bounds

    def area(self) -> Tensor:
        """(n,) float64 square pixels of what is filled: overlapping parts and lobes of crossing rings count once, holes do not."""
        return torch.from_numpy(flat.filled_areas(self._points(), self.rings.numpy(), self.objects.numpy()))

    def visible(self, height: int, width: int) -> Tensor:
        return torch.from_numpy(flat.shares(self._points(), self.rings.numpy(), self.objects.numpy(), height, width)).float()

    def rasterise(self, height: int, width: int, stride: float = 1) -> Tensor:
        """(n, height, width) bool: cells of `stride` pixels whose centre, (i + 0.5) x stride, lies inside."""
        return torch.from_numpy(flat.fill(self.runs(height, width, stride), len(self), height, width))

    def runs(self, height: int, width: int, stride: float = 1) -> flat.Runs:
        """The filled stretches of cells along rows."""
        return flat.runs(self._points(), self.rings.numpy(), self.objects.numpy(), height, width, stride)

    def columns(self, height: int, width: int) -> flat.Runs:
        """The filled stretches of pixels along columns, as run-length codes of COCO take them."""
        return flat.runs(self._points()[:, ::-1], self.rings.numpy(), self.objects.numpy(), width, height)

    def parts(self, i: int) -> list[np.ndarray]:
        """The rings of object i, (p, 2) each."""
        own = self.rings[self.objects[i] : self.objects[i + 1] + 1].tolist()
        points = self.points.numpy()
        return [points[start:end] for start, end in pairwise(own)]

    def coco(self, height: int, width: int) -> list[Any]:
        """COCO segmentations: outlines as [x y x y ...] of each part to a thousandth of a pixel, or run-length codes.

        Codes of objects with holes or with rings that cross or overlap themselves: tools fill each ring by a rule of their own.
        """
        codes = Rle.of_runs(self.columns(height, width), len(self), height, width).coco()
        rings = flat.overwound(self._points(), self.rings.numpy(), height, width)
        coded = np.bincount(flat.owner(self.objects.numpy()), rings, len(self)) > 0
        outlines = ([part.reshape(-1).astype(np.float64).round(3).tolist() for part in self.parts(i)] for i in range(len(self)))
        return [code if by_code or not outline else outline for outline, by_code, code in zip(outlines, coded, codes, strict=True)]

    def to(self, device: torch.device | str) -> Polygons:
        return Polygons(self.points.to(device), self.rings.to(device), self.objects.to(device))

    @classmethod
    def cat(cls, parts: Sequence[Polygons]) -> Polygons:
        lengths = [torch.cat([start.diff() for start in starts]) for starts in zip(*((p.rings, p.objects) for p in parts), strict=True)]
        rings, objects = (torch.nn.functional.pad(length.cumsum(0), (1, 0)) for length in lengths)
        return cls(torch.cat([part.points for part in parts]), rings, objects)

    @classmethod
    def empty(cls) -> Polygons:
        return cls(torch.zeros(0, 2), torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))

    @classmethod
    def from_parts(cls, objects: Sequence[Sequence[Part]], holes: Sequence[Sequence[Part]] | None = None) -> Polygons:
        """Objects from their outer rings and, of each object, its holes; every ring is turned to run as it should."""
        rows = []
        for i, parts in enumerate(objects):
            inner = () if holes is None else holes[i]
            rows.append([_ring(part, 1) for part in parts] + [_ring(part, -1) for part in inner])
        return cls.from_rings(rows)

    @classmethod
    def from_rings(cls, objects: Sequence[Sequence[np.ndarray]]) -> Polygons:
        """Objects from rings (p, 2) that already run as they should."""
        every = [ring for rings in objects for ring in rings]
        points = np.concatenate([np.zeros((0, 2)), *every])
        return _from_arrays(points, flat.starts(np.array([len(ring) for ring in every])), flat.starts(np.array(list(map(len, objects)))))

    @classmethod
    def from_masks(cls, masks: Sequence[np.ndarray | Tensor]) -> Polygons:
        """Objects around the filled pixels of masks (h, w), exactly: filling them gives the masks."""
        return cls.from_rings([mask_rings(np.asarray(mask)) for mask in masks])

    @classmethod
    def from_rle(cls, codes: Sequence[Mapping[str, Any]]) -> Polygons:
        """Objects around the filled pixels of COCO run-length codes, texts or lists of counts; ValueError if one is broken."""
        return cls.from_masks([Rle.from_coco(code).decode()[0] for code in codes])

    def _points(self) -> np.ndarray:
        return self.points.double().numpy()


def mask_rings(mask: np.ndarray, left: int = 0, top: int = 0) -> list[np.ndarray]:
    """The rings around the filled pixels of a mask (h, w) whose first pixel is (left, top), (p, 2) each."""
    points, rings = trace(mask)
    return np.split(points + np.array((left, top)), rings[1:-1]) if len(points) else []


def _ring(part: Part, sign: int) -> np.ndarray:
    """Points (p, 2) that run from +x to +y for sign 1."""
    ring = np.asarray(part, np.float64).reshape(-1, 2)
    area = flat.ring_areas(ring, np.array([0, len(ring)]))[0]
    return ring[::-1] if area * sign < 0 else ring


def cells_inside(shape: Shape, height: int, width: int, stride: float) -> Tensor:
    """(n, height, width) bool: cells of `stride` pixels whose centre lies in an outline or rotated box, else in the bounds of the shape."""
    if isinstance(shape, Polygons):
        return shape.rasterise(height, width, stride)
    if isinstance(shape, RBoxes):
        corners = shape.corners()
    else:
        x1, y1, x2, y2 = shape.bounds().unbind(-1)
        corners = torch.stack((x1, y1, x2, y1, x2, y2, x1, y2), -1).unflatten(1, (4, 2))
    return Polygons.from_parts([[ring] for ring in corners.numpy()]).rasterise(height, width, stride)


def _without_flat(points: np.ndarray, rings: np.ndarray, objects: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Less the rings of fewer than three points or without width or height."""
    lengths = np.diff(rings)
    good = lengths >= 3
    some = lengths > 0
    if some.any():
        begins = rings[:-1][some]
        sides = np.maximum.reduceat(points, begins) - np.minimum.reduceat(points, begins)
        good[some] &= (sides > 0).all(1)
    kept = np.bincount(flat.owner(objects), good, len(objects) - 1).astype(np.int64)
    return points[np.repeat(good, lengths)], flat.starts(lengths[good]), flat.starts(kept)


def _from_arrays(points: np.ndarray, rings: np.ndarray, objects: np.ndarray) -> Polygons:
    return Polygons(torch.from_numpy(points.astype(np.float32)), torch.from_numpy(rings), torch.from_numpy(objects))

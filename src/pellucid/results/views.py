"""The shapes of a `Result`, one view a kind: all of length n, in original pixels, best first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..geometry.keypoints import SHOWN
from ..geometry.masks import Masks
from ..geometry.polygons import Polygons
from ..geometry.rboxes import RBoxes
from ..geometry.rle import Rle


class View:
    """What every view shows of itself: how many objects, on a picture of what size."""

    orig_shape: tuple[int, int]  # height, width

    def __len__(self) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        height, width = self.orig_shape
        return f"{type(self).__name__}({self._told()}, {width}x{height})"

    def _told(self) -> str:
        return str(len(self))


@dataclass(frozen=True, repr=False)
class BoxesView(View):
    """Axis-aligned boxes."""

    xyxy: Tensor  # (n, 4) float32
    conf: Tensor  # (n,) in [0, 1]
    cls: Tensor  # (n,) int64, positions in the result's `names`
    orig_shape: tuple[int, int]  # height, width

    def __len__(self) -> int:
        return len(self.xyxy)

    @property
    def xywh(self) -> Tensor:
        """(n, 4) centre x, centre y, width, height."""
        return torch.cat(((self.xyxy[:, :2] + self.xyxy[:, 2:]) / 2, self.xyxy[:, 2:] - self.xyxy[:, :2]), 1)

    @property
    def xyxyn(self) -> Tensor:
        """`xyxy` as shares of the picture's width and height."""
        return self.xyxy / self._sides

    @property
    def xywhn(self) -> Tensor:
        """`xywh` as shares of the picture's width and height."""
        return self.xywh / self._sides

    @property
    def _sides(self) -> Tensor:
        return sides(self.orig_shape).repeat(2).to(self.xyxy)


@dataclass(frozen=True, repr=False)
class MasksView(View):
    """Masks; full-size pixels are made when they are asked for."""

    shape: Masks | Polygons | Rle
    orig_shape: tuple[int, int]  # height, width

    def __len__(self) -> int:
        return len(self.shape)

    @property
    def data(self) -> Tensor:
        """(n, height, width) bool, all in memory: index the result first where there are many."""
        if isinstance(self.shape, Rle):
            return self.shape.decode()
        return self.shape.dense(*self.orig_shape) if isinstance(self.shape, Masks) else self.shape.rasterise(*self.orig_shape)

    @property
    def polygons(self) -> Polygons:
        """The outlines, with every part and hole."""
        return outlines(self.shape, self.orig_shape)

    @property
    def xy(self) -> list[list[np.ndarray]]:
        """Of each object its rings, (p, 2) each: outer ones run clockwise on screen, holes the other way."""
        polygons = self.polygons
        return [polygons.parts(i) for i in range(len(polygons))]

    @property
    def xyn(self) -> list[list[np.ndarray]]:
        """`xy` as shares of the picture's width and height."""
        return [[ring / sides(self.orig_shape).numpy() for ring in rings] for rings in self.xy]

    def rle(self) -> list[dict[str, Any]]:
        """COCO run-length codes, {"size": [h, w], "counts": text} each."""
        return run_lengths(self.shape, self.orig_shape).coco()


@dataclass(frozen=True, repr=False)
class KeypointsView(View):
    """Keypoints."""

    data: Tensor  # (n, K, 3) float32: x, y, confidence; of ground truth the visibility 0, 1 or 2
    orig_shape: tuple[int, int]  # height, width

    def __len__(self) -> int:
        return len(self.data)

    def _told(self) -> str:
        return f"{len(self)} of {self.data.shape[1]} points"

    @property
    def xy(self) -> Tensor:
        """(n, K, 2)."""
        return self.data[..., :2]

    @property
    def xyn(self) -> Tensor:
        """`xy` as shares of the picture's width and height."""
        return self.xy / sides(self.orig_shape).to(self.data)

    @property
    def conf(self) -> Tensor:
        """(n, K) in [0, 1], how sure it is that the point can be placed; 1 where the model does not say."""
        return self.data[..., 2].clamp(max=1)

    @property
    def visible(self) -> Tensor:
        """(n, K) bool."""
        return self.data[..., 2] > SHOWN


@dataclass(frozen=True, repr=False)
class RBoxesView(View):
    """Rotated boxes in canonical form: w >= h, theta in [-pi/4, 3 pi/4)."""

    xywhr: Tensor  # (n, 5) float32 centre x, centre y, width, height, radians from +x to +y
    conf: Tensor  # (n,) in [0, 1]
    cls: Tensor  # (n,) int64, positions in the result's `names`
    orig_shape: tuple[int, int]  # height, width

    def __len__(self) -> int:
        return len(self.xywhr)

    @property
    def xyxyxyxy(self) -> Tensor:
        """(n, 4, 2) corners."""
        return RBoxes(self.xywhr).corners()

    @property
    def xyxyxyxyn(self) -> Tensor:
        """`xyxyxyxy` as shares of the picture's width and height."""
        return self.xyxyxyxy / sides(self.orig_shape).to(self.xywhr)

    @property
    def xyxy(self) -> Tensor:
        """(n, 4) the axis-aligned boxes around them."""
        return RBoxes(self.xywhr).bounds()


def sides(size: tuple[int, int]) -> Tensor:
    """(width, height) as a tensor."""
    return torch.tensor((size[1], size[0]), dtype=torch.float32)


def outlines(shape: Masks | Polygons | Rle, size: tuple[int, int]) -> Polygons:
    """The outlines of masks within a picture of (height, width)."""
    if isinstance(shape, Rle):
        return Polygons.from_masks([shape[i : i + 1].decode()[0].numpy() for i in range(len(shape))])
    return shape.clip(*size).polygons() if isinstance(shape, Masks) else shape


def run_lengths(shape: Masks | Polygons | Rle, size: tuple[int, int]) -> Rle:
    """The run-length codes of masks on a picture of (height, width)."""
    if isinstance(shape, Rle):
        return shape
    if isinstance(shape, Masks):
        return shape.rle(*size)
    return Rle.of_runs(shape.columns(*size), len(shape), *size)

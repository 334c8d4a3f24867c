"""What every shape on an image can do; `Boxes` is one, masks, keypoints and rotated boxes are others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor


class Shape(Protocol):
    """n shapes in pixels of one frame, stored as one tensor whose first axis is the object."""

    extent: ClassVar[bool]  # whether the shape itself says how far its object reaches, so that the box follows it

    @property
    def data(self) -> Tensor: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor | slice) -> Self: ...

    def warp(self, matrix: Tensor) -> Self:
        """Shapes after the 3x3 `matrix` moved the plane."""

    def clip(self, height: int, width: int) -> Self:
        """Shapes cut at the frame [0, width] x [0, height]."""

    def bounds(self) -> Tensor:
        """Axis-aligned bounding boxes, (n, 4) xyxy."""

    def visible(self, height: int, width: int) -> Tensor:
        """Share of each shape's area that lies in the frame, (n,) in [0, 1]; 0 where there is no area."""

    def to(self, device: torch.device | str) -> Self: ...

    @classmethod
    def cat(cls, parts: Sequence[Self]) -> Self: ...

    @classmethod
    def empty(cls) -> Self: ...

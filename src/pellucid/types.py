"""The values that flow, in the order a pixel meets them. Read this file first.

files -> `Index` -> `Sample` -> `Packed` -> (device, `augment.apply`) -> `Batch` -> model -> `Output` -> `Assignment`, `Pairs` -> losses,
or `Output` -> decode -> `Prediction`. Every tensor between `Batch` and the optimizer has a shape that the batch alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from .geometry import Boxes, Letterbox, Shape


@dataclass(frozen=True)
class ImageMeta:
    """Which image this is and how it was placed."""

    row: int  # position in the Index, or in the list of sources
    id: int  # the user's image id (COCO), else row
    path: str
    height: int  # original pixels, after EXIF orientation
    width: int
    letterbox: Letterbox | None = None  # None where the image was augmented


@dataclass(frozen=True)
class Frame:
    """Where a picture stands in a video."""

    index: int  # from 0, of all frames of the video
    time: float  # seconds from its start
    rate: float  # frames a second of what was looked at: that of the video over the stride
    video: Path  # relative, unique among the sources of one call


@dataclass(frozen=True)
class Instances:
    """n objects on one image; ground truth and prediction are the same type, a prediction also has scores."""

    labels: Tensor  # (n,) int64, contiguous class ids
    shapes: Mapping[str, Shape]  # each of length n: one instance axis
    scores: Tensor | None = None  # (n,) in [0, 1]
    ignore: Tensor | None = None  # (n,) bool, crowd or difficult: neither taught nor counted

    def __len__(self) -> int:
        return self.labels.shape[0]

    def __getitem__(self, index: Tensor | slice) -> Instances:
        """The chosen objects; every field is indexed alike."""
        return self._map(lambda part: part[index])

    def warp(self, matrix: Tensor) -> Instances:
        return replace(self, shapes={name: shape.warp(matrix) for name, shape in self.shapes.items()})

    def clip(self, height: int, width: int) -> Instances:
        return replace(self, shapes={name: shape.clip(height, width) for name, shape in self.shapes.items()})

    def visible(self, height: int, width: int) -> Tensor:
        """Share of each object inside the frame, (n,) in [0, 1], by the shape that says how far it reaches."""
        return self.extent().visible(height, width)

    def tighten(self, height: int, width: int) -> Instances:
        """The same objects, their boxes drawn anew around what the frame shows of them."""
        around = Boxes(self.extent().bounds()).clip(height, width)
        return replace(self, shapes={**self.shapes, "boxes": around})

    def extent(self) -> Shape:
        """The shape that says how far each object reaches."""
        return next((shape for shape in self.shapes.values() if shape.extent), self.shapes["boxes"])

    def to(self, device: torch.device | str) -> Instances:
        return self._map(lambda part: part.to(device))

    def _map(self, function) -> Instances:
        return Instances(
            function(self.labels),
            {name: function(shape) for name, shape in self.shapes.items()},
            None if self.scores is None else function(self.scores),
            None if self.ignore is None else function(self.ignore),
        )

    @classmethod
    def cat(cls, parts: Sequence[Instances]) -> Instances:
        """All objects of several parts of one image, which carry the same fields."""
        first = parts[0]
        return cls(
            torch.cat([part.labels for part in parts]),
            {name: type(shape).cat([part.shapes[name] for part in parts]) for name, shape in first.shapes.items()},
            None if first.scores is None else torch.cat([part.scores for part in parts if part.scores is not None]),
            None if first.ignore is None else torch.cat([part.ignore for part in parts if part.ignore is not None]),
        )

    @classmethod
    def empty(cls, kinds: Mapping[str, type[Shape]] | None = None) -> Instances:
        kinds = {"boxes": Boxes} if kinds is None else kinds
        return cls(torch.zeros(0, dtype=torch.int64), {name: kind.empty() for name, kind in kinds.items()})


@dataclass(frozen=True)
class Layer:
    """Source pixels and the matrix that takes them to the output canvas."""

    pixels: Tensor  # (h, w, 3) uint8 RGB
    matrix: Tensor  # (3, 3) float64


@dataclass(frozen=True)
class Sample:
    """One training image as a plan: pixels not yet resampled, objects already moved."""

    layers: tuple[Layer, ...]  # one; two where mixup blends a second image
    share: float  # weight of the first layer, 1 without mixup
    color: Tensor  # (3,) float32: hue shift in turns, saturation gain, value gain; (0, 1, 1) changes nothing
    instances: Instances  # canvas pixels
    meta: ImageMeta


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in memory that two processes share."""

    start: int  # bytes
    shape: tuple[int, ...]
    dtype: torch.dtype


class _Movable:
    """`to` and `pin_memory` for frozen dataclasses of tensors (Lightning does not walk into them)."""

    def to(self, device: torch.device | str, non_blocking: bool = True) -> Self:
        return self.replaced(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        return self.replaced(lambda tensor: tensor.pin_memory())

    def replaced(self, function) -> Self:
        """The same with every tensor, or place of one, replaced by `function` of it."""

        def walk(value):
            if isinstance(value, Tensor | Place):
                return function(value)
            if isinstance(value, _Movable):
                return value.replaced(function)
            if isinstance(value, dict):
                return {key: walk(item) for key, item in value.items()}
            return value

        return replace(self, **{f.name: walk(getattr(self, f.name)) for f in fields(self)})  # type: ignore[type-var, arg-type]


@dataclass(frozen=True)
class Regions(_Movable):
    """Ignored regions of B images, a row a class, padded to K rows: there it is not taught that the class is absent."""

    labels: Tensor  # (B, K) int64, no class of an image twice but in padded rows
    cells: Tensor  # (B, K, A) bool: the anchors whose centre lies in one; none in a padded row


@dataclass(frozen=True)
class Targets(_Movable):
    """Objects of B images, padded to N rows; N comes from the ladder 4, 8, 16, ... so that shapes recur."""

    labels: Tensor  # (B, N) int64, 0 where not valid
    valid: Tensor  # (B, N) bool
    boxes: Tensor  # (B, N, 4) float32 xyxy canvas pixels, 0 where not valid
    extras: dict[str, Tensor] = field(default_factory=dict)  # {"keypoints": (B, N, K, 3), ...}
    ignored: Regions | None = None  # None where the data have none

    @property
    def truth(self) -> dict[str, Tensor]:
        """All shapes by name, {(B, N, ...)}."""
        return {"boxes": self.boxes, **self.extras}


@dataclass(frozen=True)
class Packed(_Movable):
    """What a worker sends: the source pixels of all layers end to end in one buffer, and the plan that turns them into images."""

    buffer: Tensor  # (bytes,) uint8
    sizes: tuple[tuple[int, int], ...]  # (h, w) of each layer: B first layers, then the mixup layers
    matrices: Tensor  # (layers, 3, 3) float32, source -> canvas
    color: Tensor  # (B, 3) float32
    mixed: tuple[int, ...]  # which images the mixup layers belong to
    share: Tensor  # (len(mixed), 1, 1, 1) float32
    size: int  # S
    warped: bool  # False: every layer is already an (S, S) canvas and is used as it is
    targets: Targets
    metas: tuple[ImageMeta, ...]

    def __len__(self) -> int:
        return len(self.metas)


@dataclass(frozen=True)
class Batch(_Movable):
    """What a step eats."""

    images: Tensor  # (B, 3, S, S) uint8 RGB
    targets: Targets
    metas: tuple[ImageMeta, ...]

    def __len__(self) -> int:
        return self.images.shape[0]


@dataclass(frozen=True)
class Dense:
    """One branch of the head, raw, for A anchors of all levels."""

    outputs: Mapping[str, Tensor]  # {"cls": (B, A, C) logits, "box": (B, A, 4) distances in strides, ...}
    points: Tensor  # (A, 2) anchor centres, canvas pixels
    strides: Tensor  # (A,)
    shapes: Mapping[str, Tensor] | None = None  # all but "cls" decoded already, (B, A, ...), as an exported file gives it


@dataclass(frozen=True)
class Output:
    """Both branches and what an image's anchors share."""

    many: Dense | None  # one-to-many: needs suppression; None once fused away
    one: Dense | None  # one-to-one: end to end
    shared: Mapping[str, Tensor]  # {"proto": (B, 32, S/4, S/4)}
    size: tuple[int, int]  # height, width of the canvas


@dataclass(frozen=True)
class Assignment:
    """Who teaches whom: P = N * k slots an image, each an (anchor, object) pair; empty slots have weight 0."""

    anchor: Tensor  # (B, P) int64
    object: Tensor  # (B, P) int64
    weight: Tensor  # (B, P) float32, q of objective: class target and weight of every term
    valid: Tensor  # (B, P) bool


@dataclass(frozen=True)
class Pairs:
    """Prediction and truth gathered for the slots of an Assignment; rows of empty slots are finite and weigh 0."""

    outputs: Mapping[str, Tensor]  # raw, {"box": (B, P, 4), ...}
    shapes: Mapping[str, Tensor]  # decoded, {"boxes": (B, P, 4) canvas pixels, ...}
    truth: Mapping[str, Tensor]  # {"boxes": (B, P, 4), ...} canvas pixels
    shared: Mapping[str, Tensor]  # what the anchors of an image share, {"proto": (B, 32, S/4, S/4), ...}
    object: Tensor  # (B, P) int64, which of the image's objects
    points: Tensor  # (B, P, 2)
    strides: Tensor  # (B, P)
    weight: Tensor  # (B, P)
    valid: Tensor  # (B, P) bool
    size: tuple[int, int]  # height, width of the canvas
    objects: Mapping[str, Tensor] = field(default_factory=dict)  # (B, N, ...), what `truth` gathers: for what is too large to gather


@dataclass(frozen=True)
class Prediction:
    """What was found on one image, in its original pixels."""

    meta: ImageMeta
    instances: Instances

"""Keypoints with visibility, what a data set says about them (names, flip pairs, sigmas), and object keypoint similarity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..errors import DataError
from .affine import transform_points

_SIDED = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
COCO_NAMES = ("nose", *(f"{side}_{part}" for part in _SIDED for side in ("left", "right")))
COCO_SIGMAS = (0.026, *[0.025] * 2, *[0.035] * 2, *[0.079] * 2, *[0.072] * 2, *[0.062] * 2, *[0.107] * 2, *[0.087] * 2, *[0.089] * 2)
SHOWN = 0.5  # visibility above which a predicted point counts as seen
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")  # leftEye -> left, Eye; LEye -> L, Eye; L_EYE -> L, EYE
_OTHER = {"left": "right", "right": "left", "l": "r", "r": "l"}


@dataclass(frozen=True)
class Keypoints:
    """n objects of K points: `data` (n, K, 3) float32, x and y in pixels of one frame, visibility.

    Visibility is 0 (absent), 1 (hidden) or 2 (seen); of a prediction it is a probability. `flip[i]` is the point that a mirror shows at i.
    """

    data: Tensor
    flip: tuple[int, ...] | None = None  # None: the data do not tell left from right, so nothing may be mirrored
    skeleton: tuple[tuple[int, int], ...] = ()  # pairs of points that a drawing joins
    predicted: bool = False
    dims: int = 3  # 2: files and models without visibility, every point counts

    extent: ClassVar[bool] = False

    def __len__(self) -> int:
        return self.data.shape[0]

    def __getitem__(self, index: Tensor | slice) -> Keypoints:
        return replace(self, data=self.data[index])

    def warp(self, matrix: Tensor) -> Keypoints:
        """Every point moved; a mirror also swaps the points of each flip pair. Absent points stay at (0, 0)."""
        moved = torch.where(self.data[..., 2:] > 0, transform_points(matrix, self.data[..., :2]), 0.0)
        data = torch.cat((moved, self.data[..., 2:]), -1)
        if self.flip is not None and bool(matrix[0, 0] * matrix[1, 1] < matrix[0, 1] * matrix[1, 0]):
            data = data[:, list(self.flip)]
        return replace(self, data=data)

    def clip(self, height: int, width: int) -> Keypoints:
        """Labelled points outside the frame become absent; predicted ones move to its border and stay."""
        limit = self.data.new_tensor((width, height))
        points = self.data[..., :2]
        if self.predicted:
            return replace(self, data=torch.cat((points.clamp(min=0).minimum(limit), self.data[..., 2:]), -1))
        kept = ((points >= 0) & (points <= limit)).all(-1, keepdim=True) & (self.data[..., 2:] > 0)  # False for nan
        return replace(self, data=torch.where(kept, self.data, 0.0))

    def bounds(self) -> Tensor:
        """Around the points that are not absent, (n, 4); zeros where there is none."""
        points, seen = self.data[..., :2], self.data[..., 2:] > 0
        if not self.data.numel():
            return self.data.new_zeros(len(self), 4)
        low = torch.where(seen, points, torch.inf).amin(1)
        high = torch.where(seen, points, -torch.inf).amax(1)
        return torch.where(seen.any(1), torch.cat((low, high), -1), 0.0)

    def visible(self, height: int, width: int) -> Tensor:
        """Points have no area that a frame could cut: ones, (n,)."""
        return self.data.new_ones(len(self))

    def to(self, device: torch.device | str) -> Keypoints:
        return replace(self, data=self.data.to(device))

    @classmethod
    def cat(cls, parts: Sequence[Keypoints]) -> Keypoints:
        """All objects of several parts; DataError where objects differ in their number of points."""
        full = [part for part in parts if len(part)] or [max(parts, key=lambda part: part.data.shape[1])]
        counts = {part.data.shape[1] for part in full}
        if len(counts) > 1:
            raise DataError(f"keypoints: expected objects of one number of points, got {sorted(counts)}; mend the annotations")
        return replace(full[0], data=torch.cat([part.data for part in full]))

    @classmethod
    def empty(cls, points: int = 0) -> Self:
        return cls(torch.zeros(0, points, 3))


@dataclass(frozen=True)
class KeypointSpec:
    """What a data set says about its keypoints; JSON-able by `to_dict`, which `KeypointSpec(**...)` takes back."""

    names: tuple[str, ...]  # of the K points
    flip: tuple[int, ...] | None  # an involution of 0 ... K - 1
    sigmas: tuple[float, ...]  # how far annotators scatter, as a share of the object's scale: OKS's k is twice this
    dims: int = 3  # 2: no visibility in the files, every point counts
    skeleton: tuple[tuple[int, int], ...] = ()  # counted from 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "sigmas", tuple(float(sigma) for sigma in self.sigmas))
        object.__setattr__(self, "skeleton", tuple((int(a), int(b)) for a, b in self.skeleton))
        object.__setattr__(self, "flip", None if self.flip is None else checked_flip(self.flip, self.points))
        if not self.points or self.dims not in (2, 3):
            raise DataError(f"keypoints: expected at least one point of 2 or 3 numbers, got {self.points} of {self.dims}; mend the shape")
        if len(self.sigmas) != self.points or not all(0 < sigma < torch.inf for sigma in self.sigmas):
            raise DataError(f"keypoint sigmas: expected {self.points} numbers above 0, got {list(self.sigmas)}; give one a point")
        if not all(0 <= end < self.points for pair in self.skeleton for end in pair):
            raise DataError(f"keypoint skeleton: expected pairs of numbers below {self.points}, got {self.skeleton}; count from 0")

    @property
    def points(self) -> int:
        return len(self.names)

    @classmethod
    def make(
        cls,
        points: int,
        dims: int = 3,
        names: Sequence[str] | None = None,
        flip: Sequence[int] | None = None,
        sigmas: Sequence[float] | None = None,
        skeleton: Sequence[Sequence[int]] = (),
    ) -> KeypointSpec:
        """What is not given is filled in: flip pairs from the names, default sigmas, numbers for names."""
        if names is not None and len(names) != points:
            raise DataError(f"keypoint names: expected {points}, got {len(names)}; give one a point")
        flip = flip_from_names(names) if flip is None and names is not None else flip
        sigmas = default_sigmas(points, dims, names) if sigmas is None else sigmas
        names = numbered(points) if names is None else names
        return cls(tuple(names), None if flip is None else tuple(flip), tuple(sigmas), dims, tuple((a, b) for a, b in skeleton))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def numbered(points: int) -> tuple[str, ...]:
    """Names for points that have none."""
    return tuple(f"point {i}" for i in range(points))


def is_person(points: int, dims: int = 3, names: Sequence[str] | None = None) -> bool:
    """Whether these are COCO's 17 points of a person: of points without names the number decides."""
    fits = (points, dims) == (len(COCO_NAMES), 3)
    return fits and (names is None or tuple(names) in (COCO_NAMES, numbered(points)))


def default_sigmas(points: int, dims: int = 3, names: Sequence[str] | None = None) -> tuple[float, ...]:
    """COCO's for the 17 points of a person, else 1 / K for each."""
    return COCO_SIGMAS if is_person(points, dims, names) else (1 / max(points, 1),) * points


def checked_flip(flip: Sequence[int], points: int) -> tuple[int, ...]:
    """`flip` as a tuple; DataError unless it swaps points in pairs (a permutation that is its own inverse)."""
    flip = tuple(int(i) for i in flip)
    if sorted(flip) != list(range(points)) or any(flip[other] != i for i, other in enumerate(flip)):
        raise DataError(
            f"keypoint flip map: expected the numbers 0 to {points - 1}, each pair pointing at each other, got {list(flip)}; "
            "mend it, or leave it out and nothing is mirrored"
        )
    return flip


def flip_from_names(names: Sequence[str]) -> tuple[int, ...] | None:
    """The point that a mirror shows at each place, by left/right and l/r in the names.

    None where no name tells sides, or where one side's partner is missing.
    """
    words = [tuple(word.lower() for word in _WORD.findall(name)) for name in names]
    place = {word: i for i, word in enumerate(words)}
    if len(place) < len(words):
        return None
    flip = []
    for i, word in enumerate(words):
        partners = [place[other] for other in _mirrored(word) if other in place]
        if not partners and {"left", "right"} & set(word):
            return None
        flip.append(partners[0] if partners else i)
    paired = all(flip[other] == i for i, other in enumerate(flip)) and flip != list(range(len(flip)))
    return tuple(flip) if paired else None


def _mirrored(word: tuple[str, ...]) -> list[tuple[str, ...]]:
    """What the other side's name could be: sides as words of their own, then glued to the first or the last word."""
    swapped = tuple(_OTHER.get(part, part) if len(part) > 1 or i in (0, len(word) - 1) else part for i, part in enumerate(word))
    found = [swapped] if swapped != word else []
    for side in ("left", "right"):
        for i, part in enumerate(word):
            if part.startswith(side) and part != side:
                found.append((*word[:i], _OTHER[side] + part[len(side) :], *word[i + 1 :]))
            if part.endswith(side) and part != side:
                found.append((*word[:i], part[: -len(side)] + _OTHER[side], *word[i + 1 :]))
    return found


def oks(predicted: Tensor, truth: Tensor, area: Tensor, sigmas: Tensor) -> Tensor:
    """Object keypoint similarity in [0, 1], (...,); 0 where no point is labelled (COCO; methods.md 8).

    predicted (..., K, 2 or more), truth (..., K, 3), area (...,) that broadcast; sigmas (K,). Absent points may hold anything.
    """
    near, seen = point_similarity(predicted, truth, area, sigmas)
    return near.sum(-1) / seen.sum(-1).clamp(min=1)


def point_similarity(predicted: Tensor, truth: Tensor, area: Tensor, sigmas: Tensor) -> tuple[Tensor, Tensor]:
    """exp(-d^2 / (2 (2 sigma)^2 area)) of each point, 0 for absent ones, (..., K); and which points are labelled, (..., K) float."""
    seen = truth[..., 2] > 0
    dx, dy = (predicted[..., axis] - torch.where(seen, truth[..., axis], 0.0) for axis in (0, 1))
    spread = 8 * sigmas.square() * area.clamp(min=1e-9)[..., None]
    near = torch.where(seen, torch.exp(-(dx.square() + dy.square()) / spread), 0.0)
    return near, seen.to(near.dtype)

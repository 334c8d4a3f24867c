"""Annotation kinds beside boxes as flat rows, one row an object, and the one place where rows become shapes.

polygons: every ring's points x, y, each ring ended by a pair of NaN; outer rings and holes run opposite ways.
keypoints: K points x, y, visibility (0 absent, 1 hidden, 2 seen). rboxes: cx, cy, w, h, theta. area: square pixels, 0 where not stated.
Only where a copy is to be written: origin, the object's place in its file from 1; drawn, its four corners as they were drawn;
wound, 1 where its only ring was drawn the other way round.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from ..geometry import Shape
from ..geometry.keypoints import Keypoints, KeypointSpec
from ..geometry.polygons import Polygons
from ..geometry.rboxes import RBoxes

OF_COPIES = ("origin", "drawn", "wound")  # columns that say nothing of the object itself
GAP = np.full((1, 2), np.nan, np.float32)  # ends a ring


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths end to end: row i is values[start[i]:start[i + 1]]."""

    values: np.ndarray  # (K, ...)
    start: np.ndarray  # (M + 1,) int64

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.start[row] : self.start[row + 1]]

    def span(self, first: int, last: int) -> Ragged:
        """Rows first to last - 1, without a copy of their values."""
        start = self.start[first : last + 1]
        return Ragged(self.values[start[0] : start[-1]], start - start[0])

    def take(self, rows: np.ndarray) -> Ragged:
        """The chosen rows, in the order given."""
        return Ragged(self.values[positions(self.start, rows)], starts(np.diff(self.start)[rows]))

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.start.nbytes


class Growing:
    """A Ragged of float32 that takes one row after the other; memory is that of the arrays."""

    def __init__(self) -> None:
        self._values, self._ends = array("f"), array("q", [0])

    def append(self, row: Iterable[float] | np.ndarray) -> None:
        if isinstance(row, np.ndarray):
            self._values.frombytes(np.ascontiguousarray(row, np.float32).tobytes())
        else:
            self._values.extend(row)
        self._ends.append(len(self._values))

    def extend(self, values: np.ndarray, lengths: np.ndarray) -> None:
        """Many rows end to end."""
        self._ends.extend((np.cumsum(lengths) + len(self._values)).tolist())
        self._values.frombytes(np.ascontiguousarray(values, np.float32).tobytes())

    def build(self) -> Ragged:
        return Ragged(np.array(self._values, np.float32), np.array(self._ends, np.int64))


def starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def positions(start: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Positions of all members of the chosen rows, row after row."""
    lengths = np.diff(start)[rows]
    ends = np.cumsum(lengths)
    return np.repeat(start[rows] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def encode_rings(rings: Iterable[np.ndarray]) -> np.ndarray:
    """The row of one object's rings, each (p, 2)."""
    pieces = [piece for ring in rings for piece in (np.asarray(ring, np.float32), GAP)]
    return np.concatenate(pieces).reshape(-1) if pieces else np.zeros(0, np.float32)


def decode_rings(rows: Ragged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (m, 2), first point of every ring (r + 1,) and first ring of every object (n + 1,) of encoded rows."""
    points = rows.values.reshape(-1, 2)
    gap = np.isnan(points[:, 0])
    ends = np.flatnonzero(gap)
    rings = np.concatenate(([0], ends - np.arange(len(ends)))).astype(np.int64)
    return points[~gap], rings, np.searchsorted(ends, rows.start // 2).astype(np.int64)


def to_polygons(rows: Ragged, points: KeypointSpec | None) -> Polygons:
    """Polygons of the rows of one image."""
    return Polygons(*(torch.from_numpy(part) for part in decode_rings(rows)))


def to_keypoints(rows: Ragged, points: KeypointSpec | None) -> Keypoints:
    """Keypoints of the rows of one image."""
    assert points is not None, "an Index with keypoints needs their specification"
    data = torch.from_numpy(rows.values.copy()).reshape(-1, points.points, 3)
    return Keypoints(data, points.flip, points.skeleton, dims=points.dims)


def to_rboxes(rows: Ragged, points: KeypointSpec | None) -> RBoxes:
    """Rotated boxes of the rows of one image."""
    return RBoxes(torch.from_numpy(rows.values.copy()).reshape(-1, 5))


SHAPES: Mapping[str, Callable[[Ragged, KeypointSpec | None], Shape]] = {
    "polygons": to_polygons,
    "keypoints": to_keypoints,
    "rboxes": to_rboxes,
}


def rectangles(corners: Ragged) -> Ragged:
    """Rows of four corners (8 numbers) as rows of rotated boxes (5)."""
    quads = torch.from_numpy(corners.values.reshape(-1, 4, 2))
    boxes = RBoxes.from_corners(quads).data.numpy().astype(np.float32)
    return Ragged(boxes.reshape(-1), np.arange(len(corners) + 1, dtype=np.int64) * 5)


def finish(name: str, rows: Ragged) -> tuple[str, Ragged]:
    """The name and form under which a grown column is stored."""
    return ("rboxes", rectangles(rows)) if name == "corners" else (name, rows)

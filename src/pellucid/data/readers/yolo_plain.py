"""A YOLO label file in which all is well, read at once: the numbers are those of row after row, in a fraction of the time.

A file with anything to be cut, doubted or left out is not plain (None): it is read row by row, where every rule stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ...geometry.keypoints import KeypointSpec
from ...geometry.rings import starts
from .place import FLAT, OVERHANG, not_rectangle
from .yolo_rows import BOX_FIELDS, CORNER_FIELDS, POLYGON_FIELDS, REACH, SLACK, has_points, pose_fields

Array = np.ndarray
Size = tuple[int, int]  # height, width
Grown = tuple[Array, Array]  # values of rows end to end, length of each


@dataclass(frozen=True)
class Plain:
    """The n objects of one file."""

    boxes: Array  # (n, 4) xyxy pixels
    columns: Mapping[str, Grown] = field(default_factory=dict)
    skewed: Sequence[int] = ()  # rows whose corners make no rectangle


def read_plain(rows: Sequence[Sequence[bytes]], kind: str, size: Size, points: KeypointSpec | None) -> Plain | None:
    """The objects of the rows of a file, each with its fields, as a task whose last need is `kind` reads them."""
    try:
        values = np.array([*map(float, chain.from_iterable(row[1:] for row in rows))])
    except ValueError:
        return None
    if not (len(values) and values.min() >= -REACH and values.max() <= 1 + REACH):  # holds for no nan
        return None
    return _READERS[kind](values, np.array([len(row) for row in rows]), size, points)


def _boxes(values: Array, fields: Array, size: Size, points: KeypointSpec | None) -> Plain | None:
    boxes = _placed(values.reshape(-1, 4), size) if (fields == BOX_FIELDS).all() else None
    return None if boxes is None else Plain(boxes)


def _placed(shares: Array, size: Size) -> Array | None:
    """Boxes cx cy w h as xyxy pixels."""
    if shares.max() > 1 + SLACK:
        return None
    half = shares[:, 2:] / 2
    return _inside((shares[:, :2] - half) * size[::-1], (shares[:, :2] + half) * size[::-1], size)


def _inside(low: Array, high: Array, size: Size) -> Array | None:
    """Boxes of corners (n, 2) that reach no farther over the edge than rounding does, moved to it."""
    limit = np.array(size[::-1])
    if low.min() < -OVERHANG or (high > limit + OVERHANG).any():
        return None
    return _cut(low, high, limit)


def _cut(low: Array, high: Array, limit: Array) -> Array | None:
    low, high = np.maximum(low, 0), np.minimum(high, limit)
    return np.concatenate((low, high), 1) if (high > low).all() else None


def _polygons(values: Array, fields: Array, size: Size, points: KeypointSpec | None) -> Plain | None:
    if fields.min() < POLYGON_FIELDS or not (fields % 2).all() or any(has_points(count, points) for count in set(fields.tolist())):
        return None
    count, ring, begins = fields // 2, values.reshape(-1, 2) * size[::-1], starts(fields // 2)
    begins, last = begins[:-1], begins[1:] - 1
    low, high = np.minimum.reduceat(ring, begins), np.maximum.reduceat(ring, begins)
    if low.min() < 0 or (high > size[::-1]).any():
        return None
    own, at = np.repeat(np.arange(len(count)), count), np.arange(len(ring))
    after = at + 1
    after[last] = begins
    x, y = (ring - ring[begins][own]).T
    areas = np.add.reduceat(x * y[after] - x[after] * y, begins) / 2
    if (np.abs(areas) <= 2 * FLAT * (high - low).sum(1)).any():
        return None
    if (areas < 0).any():  # every ring is an outer one
        ring = ring[np.where((areas < 0)[own], (begins + last)[own] - at, at)]
    rows = np.full((len(ring) + len(count), 2), np.nan, np.float32)  # a pair of nan ends each ring
    rows[at + own] = ring
    boxes, one = np.concatenate((low, high), 1), np.ones_like(fields)
    return Plain(boxes, {"polygons": (rows.reshape(-1), fields + 1), "area": (np.abs(areas), one), "wound": (areas < 0, one)})


def _corners(values: Array, fields: Array, size: Size, points: KeypointSpec | None) -> Plain | None:
    if (fields != CORNER_FIELDS).any() or has_points(CORNER_FIELDS, points):
        return None
    corners = values.reshape(-1, 4, 2) * size[::-1]
    low, high = corners.min(1), corners.max(1)
    first, second = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    boxes, area = _cut(low, high, np.array(size[::-1])), np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]) / 2
    if boxes is None or (area <= 2 * FLAT * (high - low).sum(1)).any():
        return None
    return Plain(boxes, {"corners": (corners.reshape(-1), fields - 1)}, np.flatnonzero(not_rectangle(corners)).tolist())


def _keypoints(values: Array, fields: Array, size: Size, points: KeypointSpec | None) -> Plain | None:
    if points is None or (fields != pose_fields(points)).any():
        return None
    values = values.reshape(len(fields), -1)
    boxes, given = _placed(values[:, :4], size), values[:, 4:].reshape(len(fields), points.points, points.dims)
    shown = given[:, :, 2] if points.dims == 3 else np.where((given == 0).all(2), 0.0, 2.0)
    known = (shown == 0) | (shown == 1) | (shown == 2)
    if boxes is None or not known.all() or not shown.any(1).all() or (points.dims == 2 and not shown.all()):
        return None
    placed = np.concatenate((given[:, :, :2] * size[::-1], shown[:, :, None]), 2) * (shown > 0)[:, :, None] + 0.0  # -0 is 0
    inside = placed[:, :, :2].clip(0, size[::-1])
    if np.abs(placed[:, :, :2] - inside).max() > OVERHANG:
        return None
    placed[:, :, :2] = inside
    return Plain(boxes, {"keypoints": (placed.reshape(-1), np.full(len(fields), 3 * points.points))})


_READERS: Mapping[str, Callable[[Array, Array, Size, KeypointSpec | None], Plain | None]] = {
    "boxes": _boxes,
    "polygons": _polygons,
    "keypoints": _keypoints,
    "rboxes": _corners,
}

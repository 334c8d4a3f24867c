"""One row of a YOLO label file: the task says how it is read, never the number of its fields.

Values are shares of the picture's width and height, after the class id: box cx cy w h; polygon x y x y ...; keypoints cx cy w h and
K times x y (v); rotated box x y of four corners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...geometry.keypoints import KeypointSpec
from .place import Drawn

BOX_FIELDS, CORNER_FIELDS, POLYGON_FIELDS = 5, 9, 7  # the last at least
MAX_POINTS = 1024  # keypoints of one object
SLACK = 0.5  # how far a box may lie outside [0, 1] before it cannot be normalised
REACH = 2.0  # the same for a corner or a point

Size = tuple[int, int]  # height, width
Reading = tuple[Drawn, str]  # an object in pixels, and the code of what is to be said about its row


class RowError(Exception):
    """A row that cannot be read: (code of the finding, reason)."""


def parse(fields: Sequence[bytes]) -> tuple[int, list[float]]:
    """Class id and values of a row; the id and the first four values are finite numbers."""
    commas = ": blanks belong between the numbers of a row, and no commas" if any(b"," in field for field in fields) else ""
    if len(fields) < BOX_FIELDS:
        raise RowError("row-fields", f"{len(fields)} field{'s' if len(fields) > 1 else ''}{commas}")
    if not commas and not (is_number(fields[0]) and float(fields[0]).is_integer()):
        raise RowError("row-class", f"class must be a whole number, got {_shown(fields[:1])[1:-1]}")
    try:
        class_id, *values = map(float, fields)
    except ValueError:
        raise RowError("row-number", _shown(fields) + commas) from None
    if not isfinite(sum(values[:4])) or any(b"_" in field for field in fields):
        raise RowError("row-number", _shown(fields))
    return int(class_id), values


def is_number(field: bytes) -> bool:
    """Whether a field is a finite number."""
    try:
        return isfinite(float(field))
    except ValueError:
        return False


def are_corners(values: Sequence[float]) -> bool:
    """Whether the values of a row are a box by its corners, low ones first, within the picture."""
    x1, y1, x2, y2 = values[:4]
    return 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1


def read_box(values: list[float], size: Size, points: KeypointSpec | None) -> Reading:
    """The box of a row; that around a polygon or corners, and the first four values of a row with keypoints."""
    count = len(values) + 1
    if count == BOX_FIELDS or has_points(count, points):
        return Drawn(_box(values[:4], size)), ""
    if count >= POLYGON_FIELDS and count % 2:
        return Drawn(rings=[_scaled(values, size)]), "row-polygon"
    raise RowError("row-fields", f"{count} fields where a row has {BOX_FIELDS}: class cx cy w h")


def read_polygon(values: list[float], size: Size, points: KeypointSpec | None) -> Reading:
    """The polygon of a row, in one part."""
    count = _outline_fields(values, points)
    if count < POLYGON_FIELDS or not count % 2:
        raise RowError("row-fields", f"{count} fields where a row has {POLYGON_FIELDS}, 9, 11, ...: class x y x y x y ...")
    return Drawn(rings=[_scaled(values, size)]), ""


def read_corners(values: list[float], size: Size, points: KeypointSpec | None) -> Reading:
    """The four corners of a row."""
    count = _outline_fields(values, points)
    if count != CORNER_FIELDS:
        code = "row-outline" if count >= POLYGON_FIELDS and count % 2 else "row-fields"
        raise RowError(code, f"{count} fields where a row has {CORNER_FIELDS}: class x y x y x y x y")
    return Drawn(corners=_scaled(values, size)), ""


def read_points(values: list[float], size: Size, points: KeypointSpec | None) -> Reading:
    """The box and the keypoints of a row; where the data have no visibility, a point at (0, 0) is one that is absent."""
    assert points is not None
    count = len(values) + 1
    if count == BOX_FIELDS:
        raise RowError("row-box", "5 fields")
    if count != pose_fields(points):
        shape = f"class cx cy w h and {points.points} x {points.dims}"
        raise RowError("row-fields", f"{count} fields where a row has {pose_fields(points)}: {shape}")
    rows = np.empty((points.points, 3))
    rows[:, : points.dims] = np.array(values[4:]).reshape(points.points, points.dims)
    if points.dims == 2:
        rows[:, 2] = np.where((rows[:, :2] == 0).all(1), 0, 2)
    seen = rows[rows[:, 2] > 0, :2]
    if seen.size and (seen.min() < -REACH or seen.max() > 1 + REACH):
        raise RowError("row-range", f"a point at {seen.min():g} or {seen.max():g}")
    with np.errstate(over="ignore", invalid="ignore"):
        rows[:, :2] *= (size[1], size[0])
    origin = points.dims == 2 and not rows[:, 2].all()
    return Drawn(_box(values[:4], size), points=rows), "point-origin" if origin else ""


READERS: Mapping[str, Callable[[list[float], Size, KeypointSpec | None], Reading]] = {
    "boxes": read_box,
    "polygons": read_polygon,
    "keypoints": read_points,
    "rboxes": read_corners,
}


def points_of(source: Path, config: Mapping[str, Any]) -> KeypointSpec | None:
    """What a data.yaml says about keypoints by kpt_shape, flip_idx, kpt_names and kpt_sigmas; DataError where it contradicts itself."""
    if "kpt_shape" not in config:
        return None
    try:
        count, dims = (int(value) for value in config["kpt_shape"])
        flip = None if "flip_idx" not in config else [int(value) for value in config["flip_idx"]]
        sigmas = None if "kpt_sigmas" not in config else [float(value) for value in config["kpt_sigmas"]]
    except (TypeError, ValueError):
        raise DataError(f"{source}: expected kpt_shape as [K, 2 or 3], flip_idx and kpt_sigmas as numbers; correct them.") from None
    if not 1 <= count <= MAX_POINTS or dims not in (2, 3):
        raise DataError(f"{source}: expected kpt_shape as [K, 2 or 3] with K from 1 to {MAX_POINTS}, got [{count}, {dims}]; correct it.")
    try:
        return KeypointSpec.make(count, dims, _names(source, config.get("kpt_names")), flip, sigmas)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None


def _names(source: Path, given: Any) -> list[str] | None:
    """Names of the points, a list, or a mapping of classes to lists that agree."""
    lists = list(given.values()) if isinstance(given, dict) else [given]
    if given is None:
        return None
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
        raise DataError(f"{source}: expected kpt_names as a list of names, or a mapping of classes to such lists; correct it.")
    if any(names != lists[0] for names in lists):
        raise DataError(f"{source}: expected the same kpt_names for all classes, since they share one list of points; make them agree.")
    return lists[0]


def _outline_fields(values: Sequence[float], points: KeypointSpec | None) -> int:
    """The number of fields of a row; RowError where it has a box, alone or with the keypoints of kpt_shape."""
    count = len(values) + 1
    if count == BOX_FIELDS:
        raise RowError("row-box", "5 fields")
    if points is not None and has_points(count, points):
        raise RowError("row-points", f"{count} fields: class cx cy w h and {points.points} x {points.dims}")
    return count


def has_points(count: int, points: KeypointSpec | None) -> bool:
    """Whether a row of `count` fields is one with the data's keypoints."""
    return points is not None and count == pose_fields(points)


def pose_fields(points: KeypointSpec) -> int:
    """The number of fields of a row with a box and keypoints."""
    return BOX_FIELDS + points.points * points.dims


def _box(values: Sequence[float], size: Size) -> tuple[float, float, float, float]:
    cx, cy, w, h = values
    if min(cx, cy) < -SLACK or max(cx, cy, w, h) > 1 + SLACK:
        raise RowError("row-range", " ".join(f"{value:g}" for value in values))
    height, width = size
    return (cx - w / 2) * width, (cy - h / 2) * height, (cx + w / 2) * width, (cy + h / 2) * height


def _scaled(values: Sequence[float], size: Size) -> np.ndarray:
    """Points (p, 2) in pixels."""
    if min(values) < -REACH or max(values) > 1 + REACH:
        raise RowError("row-range", f"values from {min(values):g} to {max(values):g}")
    return np.array(values).reshape(-1, 2) * (size[1], size[0])


def _shown(fields: Sequence[bytes]) -> str:
    return repr(b" ".join(fields)[:60].decode(errors="replace"))

"""COCO annotations and categories: boxes, polygons, run-length masks, keypoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...errors import DataError
from ...geometry.keypoints import KeypointSpec
from ...geometry.polygons import mask_rings
from ...geometry.rle import Rle
from ..findings import Log
from .place import Drawn

T = TypeVar("T")
_MASK_LIMIT = 1 << 28  # pixels of a run-length mask


def drawn_of(annotation: dict, columns: Sequence[str], points: KeypointSpec | None) -> Drawn:
    """An annotation as it was drawn, with what `columns` ask for; ValueError says which field is malformed."""
    box, rings, traced = _field(annotation, "bbox", "x, y, width, height", _box), None, False
    if "polygons" in columns or box is None:
        rings, traced = _field(annotation, "segmentation", "lists of x and y, or run lengths with their size", _rings)
    seen = None
    if "keypoints" in columns and points is not None:
        seen = _field(annotation, "keypoints", f"x, y and visibility of {points.points} points", lambda given: _points(given, points))
    return Drawn(box, rings, traced, seen, area=_area(annotation), ignore=annotation.get("iscrowd") in (1, True, "1"))


def _field(annotation: dict, name: str, expected: str, read: Callable[[Any], T]) -> T:
    """A field as `read` understands it; ValueError with what was expected where it does not."""
    given = annotation.get(name)
    try:
        return read(given)
    except (TypeError, ValueError, OverflowError, KeyError, IndexError):
        raise ValueError(f"expected `{name}` as {expected}, got {str(given)[:60]}") from None


def _box(given: Any) -> tuple[float, float, float, float] | None:
    if not given:
        return None
    x, y, w, h = map(float, given)
    return x, y, x + w, y + h


def _area(annotation: dict) -> float:
    """The stated area, 0 where there is none that can be used."""
    area = annotation.get("area")
    usable = isinstance(area, int | float) and not isinstance(area, bool) and 0 < area < 1e12
    return float(area) if usable else 0.0  # type: ignore[arg-type]


def _rings(segmentation: object) -> tuple[list[np.ndarray], bool]:
    """Rings of a segmentation, and whether holes already run the other way than outer rings."""
    if isinstance(segmentation, dict):
        return rle_rings(segmentation), True
    if segmentation is None:
        return [], False
    if not isinstance(segmentation, list):
        raise TypeError("segmentation")
    parts = [np.array(part, np.float64) for part in segmentation]
    if any(part.ndim != 1 for part in parts):
        raise ValueError("segmentation")
    return [part.reshape(-1, 2) for part in parts if len(part)], False


def rle_rings(code: Mapping[str, Any]) -> list[np.ndarray]:
    """The rings around a run-length mask, along the edges of its pixels; ValueError where it does not fill its size."""
    height, width = (int(side) for side in code["size"])
    if not 0 < height * width <= _MASK_LIMIT:
        raise ValueError("size")
    ends = np.cumsum(Rle.from_coco(code).counts.numpy())
    begin, end = ends[0:-1:2], ends[1::2]
    begin, end = begin[end > begin], end[end > begin]
    if not len(begin):
        return []
    first, last = int(begin[0]) // height, (int(end[-1]) - 1) // height  # columns
    change = np.zeros((last - first + 1) * height + 1, np.int8)
    np.add.at(change, begin - first * height, 1)
    np.add.at(change, end - first * height, -1)
    mask = np.cumsum(change[:-1], dtype=np.int8).reshape(-1, height).T > 0
    rows = np.flatnonzero(mask.any(1))
    return mask_rings(mask[rows[0] : rows[-1] + 1], first, int(rows[0]))


def _points(given: object, spec: KeypointSpec) -> np.ndarray | None:
    if given is None or given == []:
        return None
    points = np.array(given, np.float64)
    if points.shape != (3 * spec.points,):
        raise ValueError("keypoints")
    return points.reshape(-1, 3)


def points_of(listed: Mapping[Path, Sequence[dict]], config: Mapping[str, Any], log: Log) -> KeypointSpec | None:
    """What the categories of all files say about keypoints, with flip_idx and kpt_sigmas of the YAML; None where none has any.

    DataError where categories disagree in the number of points, or in what a mirror does to them.
    """
    found = [(path, category) for path, categories in listed.items() for category in categories if category.get("keypoints")]
    if not found:
        return None
    specs = [_spec(path, category, config, log) for path, category in found]
    first, title, said = specs[0], repr(found[0][1].get("name")), set[str]()
    for (path, category), spec in zip(found, specs, strict=True):
        name = repr(category.get("name"))
        if spec.points != first.points:
            raise DataError(
                f"{path}: category {name} has {spec.points} keypoints but {title} has {first.points}; "
                "a data set has one number of them, split it or fill them up"
            )
        if spec.flip != first.flip:
            raise DataError(f"{path}: the keypoints of {name} and {title} mirror differently; name or order them alike, or give flip_idx.")
        if spec.names != first.names and name not in said:
            said.add(name)
            log.add("point-names", path, f"{name} and {title}")
    return first


def _spec(path: Path, category: dict, config: Mapping[str, Any], log: Log) -> KeypointSpec:
    names, where = category["keypoints"], f"{path}: category {category.get('name')!r}"
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{where}: expected `keypoints` as a list of names, got {str(names)[:60]}; correct it.")
    try:
        given = config.get("flip_idx", category.get("flip_idx"))
        flip = None if given is None else [int(value) for value in given]
        sigmas = [float(value) for value in config["kpt_sigmas"]] if "kpt_sigmas" in config else None
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{where}: expected flip_idx and kpt_sigmas as lists of numbers; correct them.") from None
    try:
        return KeypointSpec.make(len(names), 3, names, flip, sigmas, _bones(category.get("skeleton"), len(names), where, log))
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _bones(given: Any, points: int, where: str, log: Log) -> list[tuple[int, int]]:
    """The pairs of a skeleton, counted from 0; a finding for each that is none, since they are for drawing only."""
    bones = []
    for bone in given if isinstance(given, list) else [] if given is None else [given]:
        try:
            first, second = (int(end) for end in bone)
        except (TypeError, ValueError, OverflowError):
            first = second = 0
        if min(first, second) >= 1 and max(first, second) <= points:
            bones.append((first - 1, second - 1))
        else:
            log.add("skeleton", where, f"{str(bone)[:60]}, but COCO counts the keypoints from 1, here to {points}")
    return bones

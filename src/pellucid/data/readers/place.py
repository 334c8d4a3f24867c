"""Objects as files give them become rows of an Index: turned upright, cut at the image, checked; the same rules for every format and kind.

What rounding puts up to half a pixel over the edge is moved to it; boxes and polygons that reach farther are cut, points there are absent,
rotated boxes stay as they are, since a cut would change their angle and sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from ...geometry.keypoints import KeypointSpec
from ...geometry.rings import cut_apart
from ..columns import encode_rings
from ..findings import Log
from ..images import Header

OVERHANG = 0.5  # pixels
FLAT = 1e-3  # pixels: what is nowhere wider has no area
FAR = 32  # image sides from the origin beyond which a corner is a slip
SKEW = 0.02  # of the diagonal by which the corners of a rotated box may be off a rectangle
Array = np.ndarray
Box = tuple[float, float, float, float]
Columns = dict[str, Array | Sequence[float]]


@dataclass(frozen=True)
class Drawn:
    """One object, in pixels of the image that it was drawn on."""

    box: Sequence[float] | None = None  # x1 y1 x2 y2
    rings: Sequence[Array] | None = None  # each (p, 2) float64
    traced: bool = False  # outer rings and holes already run opposite ways; else every ring is an outer one
    points: Array | None = None  # (K, 3) float64: x, y, visibility
    corners: Array | None = None  # (4, 2) float64
    area: float = 0.0  # square pixels, 0 where not stated
    ignore: bool = False
    origin: int = 0  # its place in its file, from 1


class Unusable(Exception):
    """An object of which nothing can be used: the code of the finding, and a reason."""


def turn_of(stated: tuple[int, int] | None, header: Header, log: Log, where: object) -> int:
    """The EXIF orientation, 5 to 8, by which objects drawn on an image of the `stated` (height, width) must still be turned, else 1."""
    if stated is None or min(stated) <= 0 or stated == header.size:
        return 1
    if header.orientation >= 5 and stated == header.stored:
        log.add("exif-frame", where)
        return header.orientation
    log.add("size-mismatch", where, f"stated {stated[1]}x{stated[0]}, file {header.width}x{header.height}")
    return 1


@dataclass(frozen=True)
class Canvas:
    """The upright image on which objects are placed, and what is asked of them."""

    size: tuple[int, int]  # height, width
    log: Log
    columns: tuple[str, ...] = ()  # what every object gets beside its box
    points: KeypointSpec | None = None
    turn: int = 1  # EXIF orientation by which objects must still be turned
    loose: bool = False  # an object with a box needs no outline

    def place(self, drawn: Drawn, where: object) -> tuple[Box, Columns] | None:
        """Box and columns for IndexBuilder.object, or None and a finding if the object cannot be used."""
        changed: Counter[str] = Counter()
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                box, columns = self._row(upright(drawn, self.size, self.turn, self.points), changed)
        except Unusable as trouble:
            self.log.add(trouble.args[0], where, *trouble.args[1:])
            return None
        for code, count in changed.items():
            self.log.add(code, where, count=count)
        return box, columns

    def _does_without(self, drawn: Drawn, changed: Counter[str]) -> bool:
        """Whether an object has a box alone and may."""
        if not self.loose or drawn.box is None:
            return False
        flat = sum(map(is_flat, drawn.rings or ()))
        if drawn.rings and flat == len(drawn.rings):
            changed["part-flat"] += flat
        return flat == len(drawn.rings or ())

    def _row(self, drawn: Drawn, changed: Counter[str]) -> tuple[Box, Columns]:
        columns: Columns = {}
        box, area = drawn.box, drawn.area
        if "polygons" in self.columns:
            rings = [] if self._does_without(drawn, changed) else place_rings(drawn, self.size, changed)
            box = (_sound(box, self.size, changed) or bounds(rings)) if rings else box
            area = (0.0 if changed["clipped"] and rings else area) or abs(sum(map(ring_area, rings)))
            columns["polygons"] = encode_rings(rings)
            columns |= {"wound": (float(_wound(drawn, rings)),)} if "wound" in self.columns else {}
        if "corners" in self.columns:
            corners = place_corners(drawn.corners, self.size, changed)
            columns["corners"] = corners.reshape(-1)
            columns |= {"drawn": columns["corners"]} if "drawn" in self.columns else {}
            box = _cut(bounds([corners]), self.size)
        if "keypoints" in self.columns and self.points is not None:
            columns["keypoints"] = place_points(drawn.points, self.points, self.size, changed).reshape(-1)
        if "area" in self.columns:
            columns["area"] = (area,)
        if "origin" in self.columns:
            columns["origin"] = (drawn.origin,)
        if box is None:
            box = _around(drawn.rings)
        placed = place_box(box, self.size, changed)
        if "area" in columns and changed["clipped"] and not len(columns.get("polygons", ())):
            columns["area"] = (area * _extent(placed) / _extent(box),)  # a box is as full in its part on the image
        return placed, columns


def _extent(box: Sequence[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def upright(drawn: Drawn, size: tuple[int, int], turn: int, spec: KeypointSpec | None = None) -> Drawn:
    """An object drawn on the stored pixels as it lies on the upright image of `size`; a mirror also swaps its points' sides."""
    if turn < 5:
        return drawn
    box = None if drawn.box is None else bounds([_turned(np.reshape(drawn.box, (2, 2)), size, turn)])
    rings = None if drawn.rings is None else [_turned(ring, size, turn) for ring in drawn.rings]
    corners = None if drawn.corners is None else _turned(drawn.corners, size, turn)
    points = drawn.points
    if points is not None:
        points = np.column_stack((_turned(points[:, :2], size, turn), points[:, 2]))
        if turn in (5, 7) and spec is not None and spec.flip is not None:
            points = points[list(spec.flip)]
    return replace(drawn, box=box, rings=rings, corners=corners, points=points)


def _turned(points: Array, size: tuple[int, int], turn: int) -> Array:
    """Points (p, 2) of the stored pixels on the upright ones of `size`."""
    height, width = size
    x, y = points[:, 0], points[:, 1]
    across = width - y if turn in (6, 7) else y
    down = height - x if turn in (7, 8) else x
    return np.column_stack((across, down))


def bounds(rings: Sequence[Array]) -> Box:
    """xyxy around points."""
    points = rings[0] if len(rings) == 1 else np.concatenate(rings)
    (x1, y1), (x2, y2) = points.min(0).tolist(), points.max(0).tolist()
    return x1, y1, x2, y2


def _around(rings: Sequence[Array] | None) -> Box:
    """The box around a polygon, where that is all there is."""
    if not rings:
        raise Unusable("object-without-box")
    if not isfinite(sum(float(ring.sum()) for ring in rings)):
        raise Unusable("row-number")
    if all(map(is_flat, rings)):
        raise Unusable("degenerate", _extents_of(rings))
    return bounds(rings)


def place_box(box: Sequence[float], size: tuple[int, int], changed: Counter[str]) -> Box:
    """The part of an xyxy box that lies on the image."""
    if trouble := box_trouble(box, size):
        raise Unusable(trouble, _extents(box))
    if _overhang(box, size) > OVERHANG:
        changed["clipped"] = 1
    return _cut(box, size)


def _extents(box: Sequence[float]) -> str:
    """A box in words."""
    x1, y1, x2, y2 = (f"{value:.5g}" for value in box)
    return f"x {x1} to {x2}, y {y1} to {y2} px"


def _extents_of(rings: Sequence[Array]) -> str:
    """The box around points, if there are any, in words."""
    return _extents(bounds(rings)) if any(map(len, rings)) else ""


def box_trouble(box: Sequence[float], size: tuple[int, int]) -> str:
    """The code of what makes a box useless, or nothing."""
    x1, y1, x2, y2 = box
    height, width = size
    if not isfinite(x1 + y1 + x2 + y2):
        return "row-number"
    if x2 <= x1 or y2 <= y1:
        return "degenerate"
    return "outside" if x2 <= 0 or y2 <= 0 or x1 >= width or y1 >= height else ""


def _overhang(box: Sequence[float], size: tuple[int, int]) -> float:
    return max(-box[0], -box[1], box[2] - size[1], box[3] - size[0])


def _cut(box: Sequence[float], size: tuple[int, int]) -> Box:
    height, width = size
    return max(box[0], 0.0), max(box[1], 0.0), min(box[2], float(width)), min(box[3], float(height))


def _sound(box: Sequence[float] | None, size: tuple[int, int], changed: Counter[str]) -> Sequence[float] | None:
    """A stated box, or None if the one around the polygon must stand in for it."""
    if box is not None and box_trouble(box, size):
        changed["box-replaced"] = 1
        return None
    return box


def place_rings(drawn: Drawn, size: tuple[int, int], changed: Counter[str]) -> list[Array]:
    """The rings of a polygon on the image, those without area left out, outer ones all run the same way."""
    rings = drawn.rings
    if not rings and drawn.ignore and drawn.box is not None:
        rings = [rectangle(drawn.box)]  # a region to be ignored is as large as its box
    if not rings:
        raise Unusable("object-without-polygon")
    if not isfinite(sum(float(ring.sum()) for ring in rings)):
        raise Unusable("row-number")
    kept = [ring for ring in rings if not is_flat(ring)]
    if not kept:
        raise Unusable("degenerate", _extents_of(rings))
    if len(kept) < len(rings):
        changed["part-flat"] += len(rings) - len(kept)
    box = bounds(kept)
    if trouble := box_trouble(box, size):
        raise Unusable(trouble, _extents(box))
    if (overhang := _overhang(box, size)) > 0:
        kept = _cut_rings(kept, size) if overhang > OVERHANG else [np.clip(ring, 0, size[::-1]) for ring in kept]
    if overhang > OVERHANG:
        changed["clipped"] = 1
    if not kept:
        raise Unusable("outside")
    if drawn.traced:
        return kept if ring_area(max(kept, key=lambda ring: abs(ring_area(ring)))) > 0 else [ring[::-1] for ring in kept]
    return [ring if ring_area(ring) >= 0 else ring[::-1] for ring in kept]


def _wound(drawn: Drawn, rings: Sequence[Array]) -> bool:
    """Whether the only ring that is left of an object was drawn the other way round."""
    if len(rings) != 1 or drawn.traced or not drawn.rings:
        return False
    return min(map(ring_area, drawn.rings), key=lambda area: -abs(area)) < 0


def _cut_rings(rings: Sequence[Array], size: tuple[int, int]) -> list[Array]:
    starts = np.cumsum([0, *map(len, rings)])
    points, starts, _ = cut_apart(np.concatenate(rings), starts, (0, 0, size[1], size[0]))
    return [ring for ring in np.split(points, starts[1:-1]) if not is_flat(ring)]


def rectangle(box: Sequence[float]) -> Array:
    """The ring (4, 2) of a box."""
    x1, y1, x2, y2 = box
    return np.array(((x1, y1), (x2, y1), (x2, y2), (x1, y2)), np.float64)


def ring_area(ring: Array) -> float:
    """Signed area: positive where the ring (p, 2) runs from +x to +y."""
    x, y = (ring - ring[0]).T  # edges at the first point enclose nothing
    return float(x[:-1] @ y[1:] - x[1:] @ y[:-1]) / 2


def is_flat(ring: Array) -> bool:
    """Whether all points (p, 2) lie on one line."""
    if len(ring) < 3:
        return True
    local = ring - ring[0]
    low, high = local.min(0), local.max(0)
    if abs(ring_area(ring)) > FLAT * float((high - low).sum()):  # a strip has no larger area
        return False
    far = local[np.abs(local).sum(1).argmax()]
    away = np.abs(local[:, 0] * far[1] - local[:, 1] * far[0]).max()
    return bool(away <= FLAT * max(np.hypot(*far), FLAT))


def place_corners(corners: Array | None, size: tuple[int, int], changed: Counter[str]) -> Array:
    """The four corners of a rotated box, whole even where they reach over the edge."""
    if corners is None:
        raise Unusable("object-without-corners")
    if not isfinite(float(corners.sum())):
        raise Unusable("row-number")
    if np.abs(corners).max() > FAR * max(size):
        raise Unusable("object-far")
    if is_flat(corners):
        raise Unusable("degenerate", _extents(bounds([corners])))
    x1, y1, x2, y2 = bounds([corners])
    if x2 <= 0 or y2 <= 0 or x1 >= size[1] or y1 >= size[0]:
        raise Unusable("outside")
    if not_rectangle(corners):
        changed["not-rectangle"] = 1
    return corners


def not_rectangle(corners: Array) -> Array:
    """Whether corners (..., 4, 2) are farther off a rectangle than a drawn or rounded one may be."""
    a, b, c, d = np.moveaxis(corners, -2, 0)
    first, second, middle = (np.hypot(side[..., 0], side[..., 1]) for side in (c - a, d - b, a + c - b - d))
    off: Array = np.maximum(middle, np.abs(first - second)) > np.maximum(SKEW * np.maximum(first, second), 2 * OVERHANG)
    return off


def place_points(points: Array | None, spec: KeypointSpec, size: tuple[int, int], changed: Counter[str]) -> Array:
    """Keypoints (K, 3) with visibility 0, 1 or 2; absent ones are all zero."""
    if points is None or not len(points):
        changed["points-none"] = 1
        return np.zeros((spec.points, 3))
    shown = points[:, 2]
    labelled = shown > 0
    placed = np.where(labelled[:, None], points, 0.0)
    if not (np.isfinite(shown).all() and np.isfinite(placed).all()):
        raise Unusable("row-number")
    odd = (shown != 0) & (shown != 1) & (shown != 2)
    if odd.any():
        changed["visibility"] += int(odd.sum())
        placed[odd & labelled, 2] = 2
    limit = (size[1], size[0])
    xy = placed[:, :2]
    inside = xy.clip(0, limit)
    out = (np.abs(xy - inside) > OVERHANG).any(1)
    if out.any():
        changed["point-outside"] += int(out.sum())
    placed[:, :2] = inside
    placed[out] = 0
    if not placed[:, 2].any():
        changed["points-none"] = 1
    return placed

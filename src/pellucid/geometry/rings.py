"""Closed rings of points as flat arrays: areas, cuts at the frame, and which cells lie inside by the nonzero winding rule.

`points` (m, 2) float64, ring j has the points rings[j] to rings[j + 1], object i the rings objects[i] to objects[i + 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Runs:
    """Filled stretches along the lines of a grid, in the order of object, line and place; none overlap or are empty."""

    object: Array  # (k,) int64
    line: Array  # (k,) int64
    start: Array  # (k,) int64
    end: Array  # (k,) int64, one beyond the last filled cell


def owner(start: Array) -> Array:
    """The row of every member of rows start[i] to start[i + 1]."""
    return np.repeat(np.arange(len(start) - 1), np.diff(start))


def starts(lengths: Array) -> Array:
    """Where rows of these lengths begin, and where the last ends."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def following(rings: Array) -> Array:
    """The position of the next point of the same ring, for every point."""
    after = np.arange(1, rings[-1] + 1)
    filled = np.diff(rings) > 0
    after[rings[1:][filled] - 1] = rings[:-1][filled]
    return after


def ring_areas(points: Array, rings: Array) -> Array:
    """Signed areas (r,): positive where the ring runs from +x to +y (clockwise on screen)."""
    if not len(points):
        return np.zeros(len(rings) - 1)
    own = owner(rings)
    local = points - points[np.minimum(rings[:-1], len(points) - 1)][own]  # near the origin: nothing cancels
    after = local[following(rings)]
    cross = local[:, 0] * after[:, 1] - local[:, 1] * after[:, 0]
    return np.bincount(own, cross, len(rings) - 1) / 2


def reverse(points: Array, rings: Array) -> Array:
    """The same rings run the other way."""
    return points[(rings[:-1] + rings[1:] - 1)[owner(rings)] - np.arange(len(points))]


def cut(points: Array, rings: Array, limits: tuple[float, float, float, float]) -> tuple[Array, Array]:
    """Rings cut at left, top, right, bottom (Sutherland and Hodgman, 1974); winding numbers inside stay as they are."""
    for axis, side, sign in ((0, limits[0], 1), (1, limits[1], 1), (0, limits[2], -1), (1, limits[3], -1)):
        distance = (points[:, axis] - side) * sign
        if len(points) and distance.min() < 0:
            points, rings = _cut_side(points, rings, distance, axis, side)
    return points, rings


def _cut_side(points: Array, rings: Array, distance: Array, axis: int, side: float) -> tuple[Array, Array]:
    """The part where `distance` is not negative: each point kept, followed by where the edge after it crosses the side."""
    after = following(rings)
    inside = distance >= 0
    crosses = inside != inside[after]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(crosses, distance / (distance - distance[after]), 0.0)
    crossing = points + share[:, None] * (points[after] - points)
    crossing[:, axis] = side
    kept = np.stack((inside, crosses), 1)  # (m, 2)
    lengths = np.bincount(owner(rings), kept.sum(1), len(rings) - 1).astype(np.int64)
    return np.stack((points, crossing), 1)[kept], starts(lengths)


def runs(points: Array, rings: Array, objects: Array, height: int, width: int, stride: float = 1.0) -> Runs:
    """The cells of a (height, width) grid whose centre (i + 0.5) x stride has a winding number other than 0, along rows."""
    line, place, turn, own = _crossings(points / stride, rings, height)
    own = owner(objects)[own]
    order = np.lexsort((place, line, own))
    own, line, place, turn = own[order], line[order], place[order], turn[order]
    winding = np.cumsum(turn)  # back at 0 after every line, since rings are closed
    begins = (winding != 0) & (winding - turn == 0)
    ends = (winding == 0) & (winding - turn != 0)
    start, end = (np.clip(np.ceil(place[which] - 0.5), 0, width).astype(np.int64) for which in (begins, ends))
    own, line = own[begins], line[begins]
    filled = end > start
    return _joined(Runs(own[filled], line[filled], start[filled], end[filled]))


def _crossings(points: Array, rings: Array, height: int) -> tuple[Array, Array, Array, Array]:
    """Where edges meet the centre lines of rows: row, x, +1 upward or -1 downward, ring."""
    after = points[following(rings)] if len(points) else points
    low, high = np.minimum(points[:, 1], after[:, 1]), np.maximum(points[:, 1], after[:, 1])
    first, last = (np.clip(np.ceil(y - 0.5), 0, height).astype(np.int64) for y in (low, high))  # rows with low <= centre < high
    count = last - first
    edge = np.repeat(np.arange(len(points)), count)
    line = np.arange(len(edge)) - np.repeat(np.cumsum(count) - count - first, count)
    (x1, y1), (x2, y2) = points[edge].T, after[edge].T
    place = x1 + (line + 0.5 - y1) / (y2 - y1) * (x2 - x1)
    return line, place, np.where(y2 > y1, -1, 1), owner(rings)[edge]


def _joined(found: Runs) -> Runs:
    """Runs that touch on one line become one."""
    if not len(found.start):
        return found
    apart = (np.diff(found.object) != 0) | (np.diff(found.line) != 0) | (found.start[1:] > found.end[:-1])
    begins, ends = np.concatenate(([True], apart)), np.concatenate((apart, [True]))
    return Runs(found.object[begins], found.line[begins], found.start[begins], found.end[ends])


def fill(found: Runs, count: int, height: int, width: int) -> Array:
    """(count, height, width) bool with the runs filled."""
    cells = np.zeros((count, height, width), np.bool_)
    length = found.end - found.start
    base = (found.object * height + found.line) * width + found.start
    at = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length - base, length)
    cells.reshape(-1)[at] = True
    return cells

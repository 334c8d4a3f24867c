"""Closed rings of points as flat arrays: areas, cuts at the frame, and which cells lie inside by the nonzero winding rule.

`points` (m, 2) float64, ring j has the points rings[j] to rings[j + 1], object i the rings objects[i] to objects[i + 1].
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Array = np.ndarray
Corner = tuple[float, ...]
LINES = 64  # across an object, along which the area of crossing rings is measured
FLAT = 1e-6  # of its bounds: an object that fills no more has no area


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


def cut_apart(points: Array, rings: Array, limits: tuple[float, float, float, float]) -> tuple[Array, Array, Array]:
    """As `cut`, without the ways along a limit and back that cutting leaves around a corner: of such a ring several may come.

    Also (r,), which of the rings given each came from.
    """
    points, rings = cut(points, rings, limits)
    torn = np.flatnonzero(_returning(points, rings, limits))
    pieces, lengths, own, done = [], [], [], 0
    for ring in torn.tolist():
        parts = _without_returns(points[rings[ring] : rings[ring + 1]], limits)
        pieces += [points[rings[done] : rings[ring]], *parts]
        lengths += [np.diff(rings[done : ring + 1]), np.array([len(part) for part in parts], np.int64)]
        own += [np.arange(done, ring), np.full(len(parts), ring)]
        done = ring + 1
    last = len(rings) - 1
    whole = np.concatenate([*pieces, points[rings[done] : rings[last]]])
    return whole, starts(np.concatenate([*lengths, np.diff(rings[done:])])), np.concatenate([*own, np.arange(done, last)])


def _returning(points: Array, rings: Array, limits: tuple[float, float, float, float]) -> Array:
    """(r,) bool: rings that run along some limit in both directions."""
    after, own, count = points[following(rings)], owner(rings), len(rings) - 1
    found = np.zeros(count, np.bool_)
    for k, side in enumerate(limits):
        along = (points[:, k % 2] == side) & (after[:, k % 2] == side)
        step = (after - points)[:, 1 - k % 2]
        forth, back = (np.bincount(own[along & (sign * step > 0)], minlength=count) > 0 for sign in (1, -1))
        found |= forth & back
    return found


def _without_returns(ring: Array, limits: tuple[float, float, float, float]) -> list[Array]:
    """The rings of what is left of one where edges along a limit have met their opposites; it runs along one."""
    after = np.roll(ring, -1, 0)
    along = np.stack([(ring[:, k % 2] == side) & (after[:, k % 2] == side) for k, side in enumerate(limits)])
    border = along.any(0)
    begin = int(np.flatnonzero(border)[0])
    ring, after, along, border = np.roll(ring, -begin, 0), np.roll(after, -begin, 0), np.roll(along, -begin, 1), np.roll(border, -begin)
    turns = np.flatnonzero(np.diff(border, append=True))  # the last edge of a run of edges along a limit, or of others
    ways = [np.concatenate((ring[a + 1 : b + 1], after[b : b + 1])) for a, b in pairwise(turns) if not border[b]]
    side_of = along.argmax(0)
    for k, side in enumerate(limits):
        edges = np.stack((ring, after), 1)[border & (side_of == k), :, 1 - k % 2]  # from, to
        ways += [np.insert(steps, k % 2, side, 1) for steps in _left_over(edges)]
    return _circuits(ways)


def _left_over(edges: Array) -> Array:
    """Edges (e, 2) on one line, cut at each other's ends and without those that meet their opposites, as (m, 2, 1)."""
    ends, place = np.unique(edges, return_inverse=True)
    change = np.zeros(len(ends))
    np.add.at(change, place.reshape(edges.shape), (1, -1))
    net = np.cumsum(change)[:-1].astype(np.int64)
    steps = np.stack((ends[:-1], ends[1:]), 1)
    return np.repeat(np.where(net[:, None] > 0, steps, steps[:, ::-1]), np.abs(net), 0)[..., None]


def _circuits(ways: list[Array]) -> list[Array]:
    """Closed rings that use every way (p, 2) once, end to end; as many end at a corner as begin there."""
    ahead: dict[Corner, deque[Array]] = defaultdict(deque)
    for way in ways:
        ahead[tuple(way[0])].append(way)
    found = []
    for first in ways:
        start = tuple(first[0])
        while ahead[start]:
            taken = [ahead[start].popleft()]
            while (corner := tuple(taken[-1][-1])) != start:
                taken.append(ahead[corner].popleft())
            found.append(np.concatenate([way[:-1] for way in taken]))
    return found


def runs(points: Array, rings: Array, objects: Array, height: int, width: int, stride: float = 1.0) -> Runs:
    """The cells of a (height, width) grid whose centre (i + 0.5) x stride has a winding number other than 0, along rows."""
    own, line, place, winding, turn = _wound(points / stride, rings, objects, height)
    begins = (winding != 0) & (winding - turn == 0)
    ends = (winding == 0) & (winding - turn != 0)
    start, end = (_first_cell(place[which], width) for which in (begins, ends))
    own, line = own[begins], line[begins]
    filled = end > start
    return _joined(Runs(own[filled], line[filled], start[filled], end[filled]))


def overwound(points: Array, rings: Array, height: int, width: int) -> Array:
    """(r,) bool: rings with a winding number other than 0 and 1 at a cell's centre: holes, and rings that cross or overlap themselves."""
    own, _, place, winding, _ = _wound(points, rings, np.arange(len(rings)), height)
    cells = np.diff(_first_cell(place, width), append=0)  # up to the next crossing; of no matter after the last of a line
    return np.bincount(own[(cells > 0) & (winding != 0) & (winding != 1)], minlength=len(rings) - 1) > 0


def filled_areas(points: Array, rings: Array, objects: Array) -> Array:
    """Areas (n,) of what the winding rule fills.

    Exact where the winding numbers are 0 and 1, or 0 and -1; else, where rings cross or overlap, measured along LINES lines.
    """
    begins = rings[objects]
    low, high = (side[:, 1] for side in extents(points, begins))
    own = owner(begins)
    gain = LINES / np.where(high > low, high - low, np.inf)
    scaled = np.stack((points[:, 0], (points[:, 1] - low[own]) * gain[own]), 1)
    own, _, place, winding, _ = _wound(scaled, rings, objects, LINES)
    length = np.diff(place, append=0)
    filled, plus, minus = (np.bincount(own, length * which, len(low)) for which in (winding != 0, winding == 1, winding == -1))
    wound = np.abs(_object_areas(points, rings, objects))
    return np.where(np.maximum(plus, minus) >= filled * (1 - 1e-6), wound, filled * (high - low) / LINES)


def shares(points: Array, rings: Array, objects: Array, height: int, width: int) -> Array:
    """Shares (n,) of the filled areas that lie inside the frame; areas are taken only where an edge of the frame cuts the bounds."""
    low, high = extents(points, rings[objects])
    least = FLAT * (high - low).prod(1)
    whole = (low >= 0).all(1) & (high[:, 0] <= width) & (high[:, 1] <= height) & (np.abs(_object_areas(points, rings, objects)) > least)
    seen = whole.astype(np.float64)
    some = np.flatnonzero(~whole & (high > 0).all(1) & (low[:, 0] < width) & (low[:, 1] < height))
    if not len(some):
        return seen
    chosen, objects = members(objects, some)
    at, rings = members(rings, chosen)
    inner, kept = cut(points[at], rings, (0, 0, width, height))
    both = np.concatenate((rings, rings[-1] + kept[1:])), np.concatenate((objects, objects[-1] + objects[1:]))
    area, left = filled_areas(np.concatenate((points[at], inner)), *both).reshape(2, -1)
    filled = area > least[some]
    seen[some[filled]] = np.clip(left[filled] / area[filled], 0, 1)
    return seen


def extents(points: Array, begins: Array) -> tuple[Array, Array]:
    """Least and largest x, y (n, 2) of the points begins[i] to begins[i + 1]; zeros where there are none."""
    low, high = np.zeros((2, len(begins) - 1, 2))
    some = np.diff(begins) > 0
    if some.any():
        low[some], high[some] = (side.reduceat(points, begins[:-1][some]) for side in (np.minimum, np.maximum))
    return low, high


def members(start: Array, rows: Array) -> tuple[Array, Array]:
    """Positions of the members of the chosen rows, row after row, and where those rows start among them."""
    begins = starts(start[rows + 1] - start[rows])
    return np.arange(begins[-1]) + np.repeat(start[rows] - begins[:-1], np.diff(begins)), begins


def _object_areas(points: Array, rings: Array, objects: Array) -> Array:
    return np.bincount(owner(objects), ring_areas(points, rings), len(objects) - 1)


def _wound(points: Array, rings: Array, objects: Array, height: int) -> tuple[Array, Array, Array, Array, Array]:
    """Crossings with the centre lines of rows in the order of object, line and place: those, the winding number after each, its change."""
    line, place, turn, own = _crossings(points, rings, height)
    own = owner(objects)[own]
    order = np.lexsort((place, own * height + line))
    turn = turn[order]
    return own[order], line[order], place[order], np.cumsum(turn), turn  # back at 0 after every line, since rings are closed


def _first_cell(place: Array, width: int) -> Array:
    """The first cell of a row whose centre does not lie before `place`."""
    return np.clip(np.ceil(place - 0.5), 0, width).astype(np.int64)


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


def covered(found: Runs, height: int, width: int) -> Array:
    """The cells (height, width) bool that any run fills, whatever its object."""
    cells = np.zeros(height * width, np.bool_)
    length = found.end - found.start
    base = found.line * width + found.start
    cells[np.arange(length.sum()) - np.repeat(np.cumsum(length) - length - base, length)] = True
    return cells.reshape(height, width)


def fill(found: Runs, count: int, height: int, width: int) -> Array:
    """(count, height, width) bool with the runs filled, which are in order and nowhere over each other."""
    base = (found.object * height + found.line) * width
    limits = np.stack((base + found.start, base + found.end), 1).reshape(-1)
    lengths = np.diff(limits, prepend=0, append=count * height * width)  # empty and filled cells in turns
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths).reshape(count, height, width)

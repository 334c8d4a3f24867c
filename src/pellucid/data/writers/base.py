"""What all written formats share: the plan, objects as they are written, counted losses, pictures copied or linked."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
import torch

from ...errors import DataError
from ...geometry.keypoints import KeypointSpec
from ...geometry.rboxes import RBoxes
from ..columns import Ragged, decode_rings
from ..findings import PLACES
from ..index import DataSet, Index
from ..readers.place import not_rectangle

# code -> sentence after the count: what a written format cannot hold, and what stands there instead
LOSSES: dict[str, str] = {
    "outlines": "object(s) with an outline, which the format does not hold; their box is written",
    "turned": "oriented box(es), which the format does not hold; the box around them is written",
    "points": "object(s) with keypoints, which the format does not hold; left out",
    "enclosed": "outline(s) that are no rectangle; the smallest rectangle around them is written",
    "joined": "object(s) of several parts or with holes; written as one outline, joined by lines of no width: the pixels stay",
    "outlined": "object(s) without an outline; their box is written as one",
    "box-of-outline": "box(es) that are not the one around their outline; the format holds the outline alone",
    "ignored": "crowd or difficult object(s), which the format does not hold; left out",
    "areas": "stated area(s), which the format does not hold",
    "image-ids": "image id(s), which the format does not hold",
    "image-ids-taken": "image id(s) that another image of the same split has; renumbered",
    "annotation-ids": "annotation id(s) that another annotation of the same split has; renumbered",
    "dropped": "dropped: field(s) of a file of the same format that do not fit the copy",
    "class-ids": "class id(s), which the format does not hold; the names are kept",
    "class-names": "class name(s) that stand for several ids; the format holds names alone, these become one class",
    "renamed": "image(s) whose name, less its suffix, another has; numbered",
    "sigmas": "keypoint sigma(s), which the format does not hold",
    "skeleton": "skeleton bone(s), which the format does not hold",
    "mirrors": "keypoint(s) whose mirror partner their names do not tell, which the format does not hold",
    "circles": "circle(s), which the format does not hold; a polygon of 64 corners is written",
    "fields": "field(s) of {old} files that {new} files do not hold; left out",
}
FIELDS = 50  # names of fields that are told apart
LARGE = 1.0  # pixels by which a box may differ from its outline's and count as the same


@dataclass(frozen=True)
class Item:
    """One image of the new data set."""

    index: Index
    row: int
    name: str  # relative to its split, with "/" between folders
    image_id: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        height, width = self.index.sizes[self.row].tolist()
        return height, width


Plan = Mapping[str, Sequence[Item]]  # by split


@dataclass(frozen=True)
class Thing:
    """One object as it is written, in pixels of the upright image."""

    label: int
    box: tuple[float, float, float, float]  # xyxy
    ignore: bool
    rings: list[np.ndarray]  # outer ones run from +x to +y, holes the other way; an only one as it was drawn
    corners: np.ndarray | None  # (4, 2)
    points: np.ndarray | None  # (K, 3)
    area: float  # as stated, 0 where it is not
    origin: int = 0  # its place in its file, from 1; 0 where that is not known

    @property
    def outlines(self) -> list[np.ndarray]:
        """Its rings; the corners of an oriented box are one."""
        return self.rings or ([] if self.corners is None else [self.corners])

    @property
    def wound(self) -> bool:
        """Whether its only ring runs the other way than outer ones do."""
        return len(self.outlines) == 1 and area_of(self.outlines[0]) < 0


class Losses:
    """Counts what the format cannot hold, with the first few places; fields of other formats with all their names, up to a limit."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, list[str]]] = {}
        self._fields: Counter[str] = Counter()

    def add(self, code: str, place: object, count: int = 1) -> None:
        assert code in LOSSES, code
        total, places = self._found.get(code, (0, []))
        if count and len(places) < PLACES and str(place) not in places:
            places.append(str(place))
        if count:
            self._found[code] = (total + count, places)

    def add_fields(self, names: Iterable[str]) -> None:
        """One more of each named field."""
        for name in names:
            self._fields[name if name in self._fields or len(self._fields) < FIELDS else "others"] += 1

    def found(self) -> dict[str, tuple[int, list[str]]]:
        """Count and places by code; the places of fields are their names, each with its count."""
        named = [f"{name}: {count}" for name, count in self._fields.most_common()]
        return self._found | ({"fields": (self._fields.total(), named)} if named else {})

    def sentences(self, old: str, new: str) -> list[str]:
        """What was lost from the format `old` to the format `new`."""
        found = self.found()
        more = {code: "; ..." if count > len(places) and code != "fields" else "" for code, (count, places) in found.items()}
        said = {code: LOSSES[code].format(old=old, new=new) for code in found}
        return [f"{count} {said[code]} [{code}] ({'; '.join(places)}{more[code]})" for code, (count, places) in found.items()]


@dataclass
class Writer(ABC):
    """Writes one format into `out`; a subclass says where things lie and how they are said."""

    dataset: DataSet
    out: Path
    points: KeypointSpec | None  # of the objects that are written, None where none has a labelled point
    kind: str  # what rows of one kind hold: boxes, polygons, keypoints or rboxes
    lost: Losses = field(default_factory=Losses)
    HOLDS: ClassVar[frozenset[str]] = frozenset()  # of polygons, rboxes, keypoints, ignored, areas, ids (of classes), images (their ids)

    one_folder: ClassVar[bool] = False  # whether pictures of all splits lie together

    @property
    def holds(self) -> frozenset[str]:
        return self.HOLDS

    @abstractmethod
    def picture(self, split: str, name: str) -> str:
        """Where a picture lies, relative to `out`."""

    @abstractmethod
    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        """Write, or keep for the end, what is known of one image."""

    @abstractmethod
    def finish(self, plan: Plan) -> None:
        """Write what stands once."""

    def count(self, item: Item, things: list[Thing]) -> list[Thing]:
        """The objects that the format can hold; whatever else goes is counted."""
        for thing in things:
            self.count_one(item.name, thing)
        return things if "ignored" in self.holds else [thing for thing in things if not thing.ignore]

    def count_one(self, name: str, thing: Thing) -> None:
        add, holds = self.lost.add, self.holds
        if thing.ignore and "ignored" not in holds:
            add("ignored", name)
            return
        if thing.corners is not None and not {"polygons", "rboxes"} & holds:
            add("turned", name)
        if thing.rings and not {"polygons", "rboxes"} & holds:
            add("outlines", name)
        if thing.points is not None and "keypoints" not in holds:
            add("points", name, int(thing.points[:, 2].any()))
        if thing.area and "areas" not in holds:
            known = abs(sum(map(area_of, thing.rings))) or (thing.box[2] - thing.box[0]) * (thing.box[3] - thing.box[1])
            add("areas", name, int(abs(thing.area - known) > 0.01 * known + 1))

    def text(self, path: str, content: str) -> None:
        """Write a file as UTF-8; what that does not hold is escaped in JSON and YAML, elsewhere a byte of a file name, or a DataError."""
        target = self.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        errors = "backslashreplace" if path.endswith((".json", ".yaml")) else "surrogateescape"
        try:
            target.write_text(content, encoding="utf-8", errors=errors)
        except UnicodeEncodeError as error:
            half = ascii(error.object[max(0, error.start - 20) : error.end])
            raise DataError(f"{self.dataset.source}: expected text that {path} can hold, got {half}; rename it, or write coco.") from None


def things(index: Index, row: int) -> list[Thing]:
    """The objects of one image."""
    first, last = int(index.start[row]), int(index.start[row + 1])
    rings: list[list[np.ndarray]] = [[] for _ in range(first, last)]
    if "polygons" in index.columns:
        flat, starts, objects = decode_rings(index.columns["polygons"].span(first, last))
        every = np.split(flat.astype(np.float64), starts[1:-1]) if len(starts) > 1 else []
        rings = [every[a:b] for a, b in zip(objects[:-1].tolist(), objects[1:].tolist(), strict=True)]
    if "wound" in index.columns:
        wound = _rows(index.columns["wound"], first, last, 1)[:, 0].tolist()
        rings = [[ring[::-1] for ring in own] if other else own for own, other in zip(rings, wound, strict=True)]
    corners: Any = [None] * (last - first)
    if "rboxes" in index.columns:
        turned = torch.from_numpy(_rows(index.columns["rboxes"], first, last, 5)).double()
        corners = list(RBoxes(turned).corners().numpy())
        if "drawn" in index.columns:
            drawn = _rows(index.columns["drawn"], first, last, 8).reshape(-1, 4, 2).astype(np.float64)
            skewed = not_rectangle(drawn).tolist()
            corners = [as_drawn(own, as_was) if off else as_was for own, as_was, off in zip(corners, drawn, skewed, strict=True)]
    points: Any = [None] * (last - first)
    if "keypoints" in index.columns and index.keypoints is not None:
        flat = _rows(index.columns["keypoints"], first, last, 3 * index.keypoints.points).astype(np.float64)
        points = list(flat.reshape(last - first, index.keypoints.points, 3))
    areas = _rows(index.columns["area"], first, last, 1)[:, 0].tolist() if "area" in index.columns else [0.0] * (last - first)
    boxes = map(tuple, index.boxes[first:last].tolist())
    origins = map(int, _rows(index.columns["origin"], first, last, 1)[:, 0]) if "origin" in index.columns else [0] * (last - first)
    marks = index.ignore[first:last].tolist()
    parts = zip(index.labels[first:last].tolist(), boxes, marks, rings, corners, points, areas, origins, strict=True)
    return [Thing(*part) for part in parts]


def as_drawn(corners: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The corners (4, 2) as they were drawn; of what is no rectangle, those of the one that stands for it in that order."""
    if not not_rectangle(drawn):
        return drawn
    orders = [np.roll(way, -k, 0) for way in (corners, corners[::-1]) for k in range(4)]
    return min(orders, key=lambda order: float(((order - drawn) ** 2).sum()))


def _rows(rows: Ragged, first: int, last: int, width: int) -> np.ndarray:
    return rows.span(first, last).values.reshape(last - first, width)


def area_of(ring: np.ndarray) -> float:
    """Signed area: positive where the ring (p, 2) runs from +x to +y."""
    x, y = (ring - ring[0]).T
    return float(x[:-1] @ y[1:] - x[1:] @ y[:-1]) / 2


def joined(rings: Sequence[np.ndarray]) -> np.ndarray:
    """All rings as one (p, 2), joined by lines that run there and back: what is filled, by winding or by crossings, stays."""
    rings = sorted(rings, key=lambda ring: -abs(area_of(ring)))
    points, first = np.concatenate(rings), np.cumsum([0, *map(len, rings)])
    owner = np.repeat(np.arange(len(rings)), np.diff(first))
    rest, added = np.arange(len(points)), 0  # points that wait, and the ring that was joined last
    gap, mate = np.full(len(points), np.inf), np.zeros(len(points), np.int64)  # to the nearest point on the path, and which it is
    path = [*range(first[1])]
    while len(rest := rest[owner[rest] != added]):
        for i in range(first[added], first[added + 1]):
            apart = ((points[rest] - points[i]) ** 2).sum(1)
            nearer = rest[apart < gap[rest]]
            gap[nearer], mate[nearer] = apart[apart < gap[rest]], i
        j = int(rest[gap[rest].argmin()])
        added, near = int(owner[j]), int(mate[j])
        at = path.index(near) + 1
        path[at:at] = [*range(j, first[added + 1]), *range(first[added], j + 1), near]
    return points[path]


def rectangle_around(rings: Sequence[np.ndarray]) -> tuple[np.ndarray, bool]:
    """Corners (4, 2) of the smallest rectangle around rings, and whether the rings are that rectangle."""
    hull = _hull(np.concatenate(rings))
    edges = np.roll(hull, -1, 0) - hull
    axes = edges / np.hypot(*edges.T)[:, None]  # (e, 2)
    u, v = hull @ axes.T, hull @ np.column_stack((-axes[:, 1], axes[:, 0])).T  # (p, e)
    sizes = (np.ptp(u, 0)) * (np.ptp(v, 0))
    k = int(sizes.argmin())
    ends = [(u[:, k].min(), v[:, k].min()), (u[:, k].max(), v[:, k].min()), (u[:, k].max(), v[:, k].max()), (u[:, k].min(), v[:, k].max())]
    corners = np.array(ends) @ np.array((axes[k], (-axes[k, 1], axes[k, 0])))
    return corners, abs(abs(sum(map(area_of, rings))) - float(sizes[k])) <= 0.02 * float(sizes[k]) + LARGE


def _hull(points: np.ndarray) -> np.ndarray:
    """The convex hull (h, 2) of points that do not lie on one line."""
    rows = sorted(set(map(tuple, points.tolist())))
    half: list[list[tuple[float, float]]] = []
    for order in (rows, rows[::-1]):
        chain: list[tuple[float, float]] = []
        for x, y in order:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], (x, y)) <= 0:
                chain.pop()
            chain.append((x, y))
        half.append(chain[:-1])
    return np.array(half[0] + half[1])


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def put_picture(source: Path, target: Path, link: bool) -> None:
    """Copy a picture, or link to it; never over a file that is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        raise FileExistsError(17, "it is there already", str(target))
    if link:
        target.symlink_to(os.path.realpath(source))
    else:
        shutil.copyfile(source, target)


def stem_of(name: str) -> str:
    """`name` without its suffix."""
    return str(PurePosixPath(name).with_suffix(""))

"""LabelMe: folders train and val of pictures with a JSON each; polygons, rectangles, circles, and points that a group id joins to them.

Classes are the lines of labels.txt, else all names, sorted; keypoints are the lines of keypoints.txt, else the names of all points, sorted.
Shapes of one label and group id are the parts of one object; with the flag `difficult` it is an ignored region, and a point with the flag
`hidden` is one that cannot be seen.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...geometry.keypoints import KeypointSpec
from ..findings import Log
from ..images import SUFFIXES
from ..index import DataSet, Index, IndexBuilder
from .base import ALIASES, Request, empty_split, hints, inside, is_image, no_labels, probe, read_lines, read_text, splits_of, walk
from .place import Canvas, Drawn, bounds, not_rectangle, rectangle, turn_of

DELIVERS = ("boxes", "polygons", "keypoints")
WHOLE = DELIVERS  # what is read where all is asked for
_JSON_LIMIT, _LIST_LIMIT = 256 << 20, 1 << 24  # a JSON may hold its picture
_POINTS = re.compile(rb'(?<!\\)"points"\s*:\s*\[[\s\[]*[-0-9][-+0-9.eE,\s\[\]]*\]')
_CIRCLE = 64  # corners of the polygon that stands for a circle
NO_CLASS = ("__ignore__", "_background_")  # first lines of LabelMe's own labels.txt


@dataclass(frozen=True)
class Page:
    """One JSON file."""

    path: str
    picture: str  # as the file says
    stated: tuple[int, int] | None  # height, width
    shapes: tuple[dict, ...] = ()
    trouble: str = ""  # why it cannot be read


def found_in(folder: Path) -> bool:
    return bool(_folders(folder))


def read(source: Path, request: Request) -> DataSet:
    """The data set of a folder with train and val."""
    request.deliverable(DELIVERS, "LabelMe")
    folders = _folders(source)
    splits = splits_of(request, tuple(folders), source)
    pages = {split: [page_of(path) for path in jsons(folder)] for split, folder in folders.items()}
    shapes = [shape for split in pages for page in pages[split] for shape in page.shapes]
    classes = _listed(source / "labels.txt") or sorted({label_of(shape) for shape in shapes if kind_of(shape) != "point"} - {""})
    if not classes:
        raise DataError(f"{source}: expected named shapes in the JSON files of {', '.join(folders)}, found none; add them or a labels.txt.")
    if request.whole and not any(kind_of(shape) == "point" for shape in shapes):
        request = replace(request, needs=tuple(kind for kind in request.needs if kind != "keypoints"))
    points = _points_of(source, shapes) if "keypoints" in request.needs else None
    indexes = {split: _Split(source, split, classes, request, points).read(folders[split], pages[split]) for split in splits}
    return DataSet(source, "labelme", indexes, tuple(classes), tuple(range(len(classes))))


def _folders(source: Path) -> dict[str, Path]:
    """The folder of each split that holds a LabelMe file."""
    found = {split: source / alias for split, aliases in ALIASES.items() for alias in reversed(aliases) if (source / alias).is_dir()}
    first = {split: next(jsons(folder), None) for split, folder in found.items()}
    marked = any(path is not None and b'"shapes"' in read_text(Path(path), _JSON_LIMIT) for path in first.values())
    return found if marked else {}


def jsons(folder: Path) -> Iterator[str]:
    for parent, names in walk(folder):
        yield from (os.path.join(parent, name) for name in names if name.lower().endswith(".json"))


def document_of(path: str | Path, points: bool = True) -> dict[str, Any]:
    """The JSON of a page; `points=False`: with [0] for those of its shapes that are all numbers, in a fraction of the time."""
    data = read_text(Path(path), _JSON_LIMIT)
    found: dict[str, Any]
    if not points:
        with suppress(ValueError):  # points that begin with numbers and go on with something else
            found = json.loads(_POINTS.sub(b'"points":[0]', data))
            return found
    found = json.loads(data)
    return found


def page_of(path: str) -> Page:
    try:
        document = document_of(path)
        shapes, picture = document["shapes"], document["imagePath"]
        height, width = document.get("imageHeight"), document.get("imageWidth")
        if not isinstance(shapes, list) or not isinstance(picture, str) or not all(isinstance(shape, dict) for shape in shapes):
            return Page(path, "", None, trouble="expected `imagePath` and a list `shapes`")
    except DataError as error:
        return Page(path, "", None, trouble=str(error))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        return Page(path, "", None, trouble=f"not a LabelMe file ({str(error)[:80]})")
    stated = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    return Page(path, picture, stated, tuple(shapes))


def listed_lines(file: Path) -> list[str]:
    """The lines of a list of names, if there is one."""
    return read_lines(file, _LIST_LIMIT) if file.is_file() else []


def _listed(file: Path) -> list[str]:
    """The names in a list that are classes or points."""
    return [name for name in listed_lines(file) if name not in NO_CLASS]


def _points_of(source: Path, shapes: Sequence[dict]) -> KeypointSpec:
    names = _listed(source / "keypoints.txt") or sorted({label_of(shape) for shape in shapes if kind_of(shape) == "point"} - {""})
    if not names:
        raise DataError(f"{source}: expected shapes of type point, which are the keypoints, found none; choose another task.")
    return KeypointSpec.make(len(names), 3, names)


def kind_of(shape: dict) -> str:
    return str(shape.get("shape_type") or "polygon")


def label_of(shape: dict) -> str:
    return str(shape.get("label") or "").strip()


def ring_of(shape: dict) -> np.ndarray:
    """The ring (p, 2) of a polygon, rectangle or circle; ValueError or TypeError where it is none."""
    points = np.array(shape.get("points"), np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError("points are not pairs of numbers")
    kind = kind_of(shape)
    if kind == "polygon":
        return points
    if kind == "rectangle" and len(points) in (2, 4):
        box = rectangle(bounds([points]))
        upright = len(points) == 2 or (not_rectangle(points) and ((points == box[0]) | (points == box[2])).all())
        return box if upright else points  # four corners may be turned
    if kind == "circle" and len(points) == 2:
        angles = np.arange(_CIRCLE) * (2 * np.pi / _CIRCLE)
        return points[0] + np.hypot(*(points[1] - points[0])) * np.column_stack((np.cos(angles), np.sin(angles)))
    raise ValueError(f"{len(points)} points of a {kind}")


def picture_of(source: Path, page: Page, log: Log) -> str:
    """Where the picture of a page lies: where it says, seen from the page, else beside it; never outside the data set."""
    parent = os.path.dirname(page.path)
    name = page.picture.replace("\\", "/")
    stated = os.path.normpath(os.path.join(parent, name))
    beside = os.path.join(parent, os.path.basename(name))
    owned = stated.startswith(f"{source}{os.sep}") and os.path.isfile(stated)
    if stated != beside and os.path.isfile(beside) and not owned:
        log.add("path-guess", page.path, f"not {name} but {beside}")
        return beside
    return beside if page.trouble else inside(source, os.path.relpath(stated, source), page.path)


class _Split:
    """Reads the pages of one split."""

    def __init__(self, source: Path, split: str, classes: Sequence[str], request: Request, points: KeypointSpec | None) -> None:
        self.source, self.split, self.classes, self.points = source, split, tuple(classes), points
        self.contiguous = {name: i for i, name in enumerate(classes)}
        self.columns, self.hint = request.columns(), hints(self.classes)
        self.log, self.builder = Log(split), IndexBuilder(Path(os.path.abspath(source)), self.columns, points)

    def read(self, folder: Path, pages: Sequence[Page]) -> Index:
        """The pictures of all pages, then those without one."""
        seen: set[str] = set()
        for page in pages:
            path = picture_of(self.source, page, self.log)
            if page.trouble:
                self.log.add("label-unreadable", page.path, page.trouble)
                seen.update(os.path.splitext(page.path)[0] + suffix for suffix in SUFFIXES)
            elif path in seen:
                self.log.add("image-twice", path)
            else:
                seen.add(path)
                self._image(path, page)
        for parent, names in walk(folder):
            for path in (os.path.join(parent, name) for name in names if is_image(name)):
                if path not in seen:
                    self._negative(path)
        if not len(self.builder):
            raise empty_split(self.source, self.split, str(folder), self.log)
        if self.log.count("label-missing") == len(self.builder):
            no_labels(self.split, f"looked in {folder}", self.log)
        index = self.builder.build(self.classes, tuple(range(len(self.classes))), self.log.findings())
        return replace(index, folders=tuple(self.source / alias for aliases in ALIASES.values() for alias in aliases))

    def _negative(self, path: str) -> None:
        header = probe(path, self.log)
        if header is not None:
            self.log.add("label-missing", path)
            self.builder.image(path, header.size)

    def _image(self, path: str, page: Page) -> None:
        header = probe(path, self.log)
        if header is None:
            return
        canvas = Canvas(header.size, self.log, self.columns, self.points, turn_of(page.stated, header, self.log, path))
        self.builder.image(path, header.size, page=page.path if "origin" in self.columns else "")
        for label, where, drawn in self._objects(page):
            placed = canvas.place(drawn, where)
            if placed is not None:
                if drawn.ignore:
                    self.log.add("ignored", where)
                self.builder.object(label, placed[0], drawn.ignore, **placed[1])

    def _objects(self, page: Page) -> Iterator[tuple[int, str, Drawn]]:
        """Class, place and parts of every object of a page."""
        groups: dict[tuple[str, Any], list[np.ndarray]] = {}
        first: dict[tuple[str, Any], int] = {}
        marked: set[tuple[str, Any]] = set()
        for number, shape in enumerate(page.shapes, 1):
            where = f"{page.path}: shape {number}"
            ring = self._ring(shape, where)
            if ring is not None:
                key = key_of(shape, number)
                groups.setdefault(key, []).append(ring)
                first.setdefault(key, number)
                marked |= {key} if _flagged(shape, "difficult") else set()
        points = self._grouped_points(page, list(groups))
        for key, rings in groups.items():
            drawn = Drawn(rings=rings, points=points.get(key), ignore=key in marked, origin=first[key])
            yield self.contiguous[key[0]], f"{page.path}: shape {first[key]}", drawn

    def _ring(self, shape: dict, where: str) -> np.ndarray | None:
        """The ring of a shape with an area; None, and a finding, for others."""
        if kind_of(shape) not in ("polygon", "rectangle", "circle"):
            if kind_of(shape) != "point" or self.points is None:
                self.log.add("shape-type", where, f"{kind_of(shape)} {label_of(shape)!r}")
            return None
        if label_of(shape) not in self.contiguous:
            self.log.add("class-id", where, f"label {label_of(shape)!r}{self.hint(label_of(shape))}")
            return None
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return ring_of(shape)
        except (TypeError, ValueError, OverflowError) as error:
            self.log.add("object-malformed", where, str(error)[:60])
        return None

    def _grouped_points(self, page: Page, keys: Sequence[tuple[str, Any]]) -> dict[tuple[str, Any], np.ndarray]:
        """The keypoints (K, 3) of every object; a point without a group belongs to the only object there is.

        A point whose group several objects share belongs to none, and of two points of one name an object has the first.
        """
        if self.points is None:
            return {}
        found = {key: np.zeros((self.points.points, 3)) for key in keys}
        members: dict[Any, list[tuple[str, Any]]] = {}
        for key in keys:
            members.setdefault(key[1], []).append(key)
        for number, shape in enumerate(page.shapes, 1):
            if kind_of(shape) != "point":
                continue
            where, group = f"{page.path}: shape {number}", group_of(shape)
            owners = keys if group is None and len(keys) == 1 else members.get(group, ())
            if len(owners) > 1:
                labels = " and ".join(repr(label) for label, _ in owners)
                self.log.add("point-owner", where, f"point {label_of(shape)!r}, group id {group!r} of {labels}")
                continue
            try:
                ((x, y),) = np.array(shape.get("points"), np.float64).tolist()
                place = found[owners[0]][self.points.names.index(label_of(shape))]
            except (IndexError, ValueError, TypeError, OverflowError):
                self.log.add("object-malformed", where, f"point {label_of(shape)!r} of no object (group id {group})")
                continue
            if place[2]:
                self.log.add("point-twice", where, f"point {label_of(shape)!r} of {owners[0][0]!r}")
            else:
                place[:] = (x, y, 1 if _flagged(shape, "hidden") else 2)
        return found


def key_of(shape: dict, number: int) -> tuple[str, Any]:
    """What shapes of one object share: label and group; a shape without a group is an object of its own."""
    return label_of(shape), group_of(shape) if group_of(shape) is not None else (number,)


def _flagged(shape: dict, name: str) -> bool:
    flags = shape.get("flags")
    return isinstance(flags, dict) and flags.get(name) is True


def group_of(shape: dict) -> Any:
    group = shape.get("group_id")
    return group if isinstance(group, int | str) else None

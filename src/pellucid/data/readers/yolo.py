"""YOLO: a data.yaml (path, train, val, test, names, nc, kpt_shape, ...), pictures, and one text file of normalised rows a picture.

`path` is relative to the YAML; the last folder `images` of a picture's path becomes `labels`; a label beside its picture counts too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...errors import DataError, UsageError
from ...geometry.keypoints import KeypointSpec
from ..findings import Log
from ..index import DataSet, Index, IndexBuilder
from .base import ALIASES, OTHER_PICTURES, Request, empty_split, is_image, no_labels, probe, read_text, root_of, splits_of, walk
from .labels import Stems, Texts, say_capitals
from .place import Canvas
from .yolo_plain import read_plain
from .yolo_rows import BOX_FIELDS, READERS, RowError, are_corners, is_number, parse, points_of

DELIVERS = tuple(READERS)
_LABEL_LIMIT, _LIST_LIMIT = 16 << 20, 1 << 30
_NOT_LABELS = ("classes.txt", "readme.txt", "notes.txt", "train.txt", "val.txt", "test.txt", "predefined_classes.txt")
ROW_CODES = ("row-fields", "row-box", "row-outline", "row-points", "row-class", "row-number", "row-range")
MANY = 1 / 3  # share of the rows of a split over the edge from which on a box is doubted to be centre and size


def read(source: Path, config: dict, request: Request) -> DataSet:
    """The data set that a data.yaml describes; DataError where it cannot be read at all."""
    request.deliverable(DELIVERS, "YOLO")
    if len(request.needs) > 2:
        raise UsageError(f"A YOLO row holds boxes and one kind more, not {', '.join(request.needs)}; choose another task or format.")
    points = points_of(source, config)
    if "keypoints" in request.needs and points is None:
        raise DataError(f"{source}: expected `kpt_shape: [K, 3]`, which says how rows with keypoints are read, found none; add it.")
    whole = Log()
    classes = class_map(source, config, whole)
    root = root_of(source, config)
    keys = {split: key for split, names in ALIASES.items() for key in reversed(names) if config.get(key)}
    chosen = splits_of(request, tuple(keys), source)
    indexes = {split: _Split(root, split, classes, request, points).read(config[keys[split]], source) for split in chosen}
    return DataSet(source, "yolo", indexes, tuple(classes.values()), tuple(classes), whole.findings())


def whole(config: dict) -> tuple[str, ...]:
    """What is read where all is asked for: rows say by their YAML alone that they have keypoints."""
    return ("boxes", "keypoints") if "kpt_shape" in config else ("boxes",)


def class_map(source: Path, config: dict, log: Log) -> dict[int, str]:
    """The user's class ids and names in order, from `names` (a list or a mapping) or `nc`."""
    names, count = config.get("names"), config.get("nc")
    try:
        if isinstance(names, dict):
            classes = {int(key): str(names[key]) for key in sorted(names, key=int)}
        elif isinstance(names, list):
            classes = dict(enumerate(map(str, names)))
        else:
            classes = {i: str(i) for i in range(min(int(count or 0), 1 << 20))}
        agree = count is None or int(count) == len(classes)
    except (TypeError, ValueError):
        raise DataError(f"{source}: expected `names` as a list or a mapping of class ids to names; correct it.") from None
    if not classes or min(classes) < 0 or max(classes) >= 1 << 31:
        raise DataError(f"{source}: expected `names` with at least one class and ids from 0, found {names!r}; add the class names.")
    if not agree:
        raise DataError(f"{source}: `nc` says {count} classes but `names` has {len(classes)}; make them agree or remove `nc`.")
    for name in sorted({name for name in classes.values() if list(classes.values()).count(name) > 1}):
        log.add("name-twice", source, repr(name))
    return classes


@dataclass(frozen=True)
class Listing:
    """Names in one folder."""

    images: tuple[str, ...]
    texts: Texts
    stems: Stems  # of the pictures
    twins: frozenset[str] = frozenset()  # names that several pictures have, less their suffixes


class _Split:
    """Reads one split; folders are listed once."""

    def __init__(self, root: Path, split: str, classes: dict[int, str], request: Request, points: KeypointSpec | None) -> None:
        self.root, self.split, self.classes = root, split, classes
        self.contiguous: dict[float, int] = {class_id: i for i, class_id in enumerate(classes)}
        self.kind, self.reader, self.points = request.needs[-1], READERS[request.needs[-1]], points
        self.columns = request.columns()
        self.log, self.builder = Log(split), IndexBuilder(root, self.columns, points if "keypoints" in request.needs else None)
        self.listings: dict[str, Listing] = {}
        self.walked: set[Path] = set()
        self.shared: set[str] = set()  # label files of pictures that have a twin
        self.labelled = self.rows = 0
        self.cornered = 0  # rows over the edge that would be boxes by their corners

    def read(self, value: object, source: Path) -> Index:
        """The Index of the split whose YAML value is a folder, a list file, or a list of such."""
        entries = [str(entry) for entry in value] if isinstance(value, list) else [value] if isinstance(value, str) else []
        if not entries:
            raise DataError(f"{source}: expected `{self.split}` as a folder, a list of folders or a .txt file, got {value!r}; correct it.")
        seen: set[str] = set()
        for path in self._images(entries, source):
            if path in seen:
                self.log.add("image-twice", path)
                continue
            seen.add(path)
            self._image(path)
        if not len(self.builder):
            raise empty_split(source, self.split, ", ".join(entries), self.log)
        if not self.labelled:
            labels = label_folder(os.path.dirname(path))
            no_labels(self.split, f"looked {f'in {labels} and ' if labels else ''}beside the pictures", self.log)
        self._orphans()
        self._kinds(source)
        index = self.builder.build(tuple(self.classes.values()), tuple(self.classes), self.log.findings())
        return replace(index, folders=tuple(sorted(self.walked | ({*map(Path, self.listings)} - {self.root}))))

    def _kinds(self, source: Path) -> None:
        """Says where rows were not of the task, or of more than one kind."""
        for code in ROW_CODES:
            self.log.about(code, self.rows)
        refused = sum(self.log.count(code) for code in ROW_CODES)
        polygons = self.log.count("row-polygon")
        first = next((finding.places[0] for finding in self.log.findings() if finding.code in ROW_CODES), "")
        if refused and refused == self.rows:
            self.log.add("rows-none", source, f"{refused} rows, the first {first}")
        elif 2 * refused > self.rows and self.split == "train":
            self.log.add("rows-most", source, f"{refused} of {self.rows} rows, the first {first}")
        corners = "they look like corners x1 y1 x2 y2, where a row is class cx cy w h: the centre, then width and height"
        self.log.about("clipped", self.rows, corners if self.cornered > MANY * self.rows else "")
        if 0 < polygons < self.rows - refused:
            self.log.add("rows-mixed", source, f"{polygons} of {self.rows} rows hold a polygon")

    def _images(self, entries: Iterable[str], source: Path) -> Iterator[str]:
        for entry in entries:
            path = self._locate(entry, source)
            if path.is_dir():
                yield from self._folder(path)
            elif path.suffix.lower() == ".txt":
                yield from self._list(path)
            else:
                raise DataError(f"{source}: expected `{self.split}: {entry}` to be a folder or a .txt list, found {path}; correct it.")

    def _locate(self, entry: str, source: Path) -> Path:
        """Where an entry lies: under `path`; else, as some exporters mean it, under the YAML's folder without the leading `../`."""
        path = self.root / os.path.expanduser(entry)
        if path.exists():
            return path
        for guess in (source.parent / entry, self.root / entry.removeprefix("../"), source.parent / entry.removeprefix("../")):
            if guess.exists():
                self.log.add("path-guess", f"{source}: {entry}", f"not {path} but {guess}")
                return Path(os.path.abspath(guess))
        raise DataError(
            f"{source}: expected the pictures of {self.split!r} in {path}, but there is no such folder; check `path` and this entry."
        )

    def _folder(self, folder: Path) -> Iterator[str]:
        self.walked.add(folder)
        for parent, names in walk(folder):
            for name in names:
                if name.lower().endswith(OTHER_PICTURES):
                    self.log.add("image-format", os.path.join(parent, name))
            self.listings[parent] = _listing(names)
            yield from (os.path.join(parent, name) for name in self.listings[parent].images)

    def _list(self, file: Path) -> Iterator[str]:
        for number, line in enumerate(read_text(file, _LIST_LIMIT).splitlines(), 1):
            name = os.fsdecode(line.strip())
            if not name:
                continue
            if not os.path.isabs(name) and os.path.normpath(name).startswith(".."):
                raise DataError(f"{file}:{number}: expected a path below {self.root}, got {name!r}; correct it.")
            beside = os.path.normpath(file.parent / name)
            yield beside if os.path.exists(beside) else os.path.normpath(self.root / name)

    def _list_folder(self, folder: str) -> Listing:
        if folder not in self.listings:
            try:
                self.listings[folder] = _listing(os.listdir(folder))
            except OSError:
                self.listings[folder] = _listing(())
        return self.listings[folder]

    def _label(self, path: str) -> str | None:
        """The label file of a picture, or None."""
        folder, name = os.path.split(path)
        stem, pictures = os.path.splitext(name)[0], self._list_folder(folder)
        labels = label_folder(folder)
        own = self._list_folder(labels).texts.of(stem, pictures.stems) if labels else []
        beside = pictures.texts.of(stem, pictures.stems)
        if own and beside:
            self.log.add("label-twice", path)
        elif beside:
            self.log.add("labels-beside", path)
        elif not own:
            self.log.add("label-missing", path)
            return None
        self.labelled += 1
        place = labels if own and labels else folder
        found = os.path.join(place, (own or beside)[0])
        if own != [f"{stem}.txt"]:
            say_capitals(self.log, path, stem, own or beside)
        if stem in pictures.twins:
            self.log.add("label-shared", path, found, int(found in self.shared))
            self.shared.add(found)
        return found

    def _image(self, path: str) -> None:
        """Adds a picture and its rows; whatever is wrong with either concerns no other picture."""
        header = probe(path, self.log)
        if header is None:
            return
        label = self._label(path)
        try:
            data = read_text(label, _LABEL_LIMIT) if label else b""
        except DataError as error:
            self.log.add("label-unreadable", str(error))
            return
        self.builder.image(path, header.size)
        rows = {number: fields for number, line in enumerate(data.splitlines(), 1) if (fields := line.split())}
        self.rows += len(rows)
        if not rows or self._all_plain(rows, data, header.size, label):
            return
        canvas = Canvas(header.size, self.log, self.columns, self.points)
        for number, fields in rows.items():
            self._row(fields, canvas, label, number)

    def _all_plain(self, rows: dict[int, list[bytes]], data: bytes, size: tuple[int, int], label: str | None) -> bool:
        """Adds all rows of a file at once where each is as it should be."""
        plain = None if b"_" in data else read_plain([*rows.values()], self.kind, size, self.points)
        try:
            labels = [self.contiguous[float(fields[0])] for fields in rows.values()] if plain else []
        except (KeyError, ValueError):
            return False
        if plain is None:
            return False
        numbers = [*rows] if plain.skewed or "origin" in self.columns else []
        columns = dict(plain.columns)
        if "origin" in self.columns:
            columns["origin"] = (np.array(numbers), np.ones(len(rows), np.int64))
        if "drawn" in self.columns:
            columns["drawn"] = columns["corners"]
        self.builder.objects(labels, plain.boxes, columns)
        for position in plain.skewed:
            self.log.add("not-rectangle", f"{label}:{numbers[position]}")
        return True

    def _row(self, fields: list[bytes], canvas: Canvas, label: str | None, number: int) -> None:
        where = f"{label}:{number}"
        try:
            class_id, values = parse(fields)
            drawn, code = self.reader(values, canvas.size, self.points)
        except RowError as error:
            code, reason = error.args
            self.log.add(code, where, reason + (self._id_of(fields) if code == "row-class" else ""))
            return
        if class_id not in self.contiguous:
            self.log.add("class-id", where, f"class {class_id}, but the classes are {_span(self.classes)}")
            return
        if code:
            self.log.add(code, where)
        clipped = self.log.count("clipped")
        placed = canvas.place(replace(drawn, origin=number), where)
        self.cornered += self.log.count("clipped") > clipped and len(fields) == BOX_FIELDS and are_corners(values)
        if placed is not None:
            self.builder.object(self.contiguous[class_id], placed[0], False, **placed[1])

    def _id_of(self, fields: list[bytes]) -> str:
        """What to say of a name that stands where the id of its class is expected."""
        words = next((place for place, field in enumerate(fields) if is_number(field)), len(fields))
        name = b" ".join(fields[:words]).decode(errors="replace").strip("'\"")
        found = [str(class_id) for class_id, title in self.classes.items() if title == name]
        return f"; {name} is id {' or '.join(found)}" if found else ""

    def _orphans(self) -> None:
        """Label files in the labels folders that belong to no picture there is, of this or another split."""
        for folder in sorted(self.listings):
            labels = label_folder(folder)
            if labels is None or labels not in self.listings:
                continue
            names = os.listdir(folder)
            stems, alike = {os.path.splitext(name)[0] for name in names}, Stems(names)
            for text in self.listings[labels].texts.files():
                if text[:-4] not in stems and text[:-4] not in alike and text.lower() not in _NOT_LABELS:
                    self.log.add("label-without-image", os.path.join(labels, text))


def _listing(names: Iterable[str]) -> Listing:
    names = list(names)
    images = tuple(filter(is_image, names))
    stems = [os.path.splitext(name)[0] for name in images]
    twins = (stem for stem, count in Counter(stems).items() if count > 1) if len(set(stems)) < len(stems) else ()
    return Listing(images, Texts.among(names), Stems(images), frozenset(twins))


def label_folder(folder: str) -> str | None:
    """`folder` with its last part `images` replaced by `labels`; None if it has none."""
    parts = folder.split(os.sep)
    if "images" not in parts:
        return None
    last = len(parts) - 1 - parts[::-1].index("images")
    return os.sep.join([*parts[:last], "labels", *parts[last + 1 :]])


def _span(classes: dict[int, str]) -> str:
    ids = list(classes)
    return f"{ids[0]} to {ids[-1]}" if ids == list(range(ids[0], ids[-1] + 1)) else ", ".join(map(str, ids[:20]))

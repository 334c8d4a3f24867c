"""DOTA text: images/ and labelTxt/ under train/, val/, test/, or the splits under images/ and labelTxt/.

A row is x1 y1 x2 y2 x3 y3 x4 y4 class difficult; a class may have spaces or quotes, the flag may be missing; imagesource: and gsd: lines
are skipped. Difficult objects are ignored regions.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..findings import Log
from ..index import DataSet, Index, IndexBuilder
from .base import (
    ALIASES,
    OTHER_PICTURES,
    Request,
    empty_split,
    hints,
    is_image,
    is_text,
    no_labels,
    probe,
    read_lines,
    read_text,
    splits_of,
    walk,
)
from .labels import Stems, Texts, say_capitals, stem_of
from .place import Canvas, Drawn, bounds

DELIVERS = ("boxes", "rboxes")
WHOLE = DELIVERS  # what is read where all is asked for
_LABELS = re.compile(r"labeltxt.*|annfiles", re.IGNORECASE)
_HEADER = re.compile(r"\s*(imagesource|gsd|acquisition\W?dates?)\s*:", re.IGNORECASE)
FLAGS = ("0", "1", "2")  # easy, difficult, very difficult
_HEADERS = 3  # lines that may be of the header
_LABEL_LIMIT, _LIST_LIMIT = 64 << 20, 1 << 20


@dataclass(frozen=True)
class Split:
    """Where one split lies."""

    images: Path
    labels: Path | None  # None: a split without label files


@dataclass(frozen=True)
class Row:
    """One line of a label file."""

    corners: np.ndarray  # (4, 2) float64
    name: str
    flag: str  # 0, 1 or 2; "" where there is none

    @property
    def difficult(self) -> bool:
        return self.flag not in ("", "0")


def found_in(folder: Path) -> bool:
    return bool(_splits_in(folder)) or ((folder / "images").is_dir() and _label_folder(folder) is not None)


def read(source: Path, request: Request) -> DataSet:
    """The data set of a DOTA folder; classes are the lines of classes.txt, or else the names in all its labels, sorted."""
    request.deliverable(DELIVERS, "DOTA")
    present = _splits_in(source)
    if not present:
        raise DataError(
            f"{source}: expected train/images and train/labelTxt, found images and labels without a split; move them into train."
        )
    splits = splits_of(request, tuple(present), source)
    names = Names.of(source, present)
    indexes = {split: _Reader(source, split, present[split], names, request).read() for split in splits}
    return DataSet(source, "dota", indexes, names.listed, tuple(range(len(names.listed))))


def _splits_in(folder: Path) -> dict[str, Split]:
    """The splits of either layout that lie in a folder."""
    found: dict[str, Split] = {}
    shared = _label_folder(folder)
    for split, aliases in ALIASES.items():
        for alias in aliases:
            own, under = folder / alias, folder / "images" / alias
            labels = _label_folder(own)
            if (own / "images").is_dir() and (labels is not None or split == "test"):
                found.setdefault(split, Split(own / "images", labels))
            elif under.is_dir() and shared is not None:
                found.setdefault(split, Split(under, shared / alias if (shared / alias).is_dir() else None))
    return found if any(split.labels for split in found.values()) else {}


def _label_folder(folder: Path) -> Path | None:
    """labelTxt in a folder, or the only one with a name like it (labelTxt-v1.5, annfiles); DataError if there are several."""
    try:
        found = sorted(path for path in folder.iterdir() if _LABELS.fullmatch(path.name) and path.is_dir())
    except OSError:
        return None
    exact = [path for path in found if path.name.lower() == "labeltxt"]
    if len(exact or found) > 1:
        raise DataError(f"{folder}: expected one folder of labels, found {', '.join(path.name for path in found)}; keep one of them there.")
    return next(iter(exact or found), None)


class Names:
    """The class names, and how a name in a label finds its class: as it is written, else whatever its case, spaces and hyphens."""

    def __init__(self, listed: Sequence[str]) -> None:
        self.listed = tuple(listed)
        self._exact = {name: label for label, name in enumerate(self.listed)}
        count = Counter(map(_key, self.listed))
        self._loose = {_key(name): label for name, label in self._exact.items() if count[_key(name)] == 1}

    @classmethod
    def of(cls, source: Path, splits: dict[str, Split]) -> Names:
        """Of classes.txt; or of all labels, a name that is spelled in several ways in the most frequent one."""
        file = source / "classes.txt"
        if file.is_file():
            return cls(read_lines(file, _LIST_LIMIT))
        counts = Counter(row.name for split in splits.values() for row in _all_rows(split.labels))
        common: dict[str, str] = {}
        for name in sorted(counts, key=lambda name: (-counts[name], name)):
            common.setdefault(_key(name), name)
        if not common:
            raise DataError(f"{source}: expected objects in labelTxt, found none and no classes.txt; add one of them.")
        return cls(sorted(common.values()))

    def find(self, name: str) -> int | None:
        return self._exact.get(name, self._loose.get(_key(name)))


def _key(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.casefold())


def _all_rows(folder: Path | None) -> Iterator[Row]:
    for file in _texts(folder):
        with suppress(DataError):
            yield from (row for _, row in parse(Path(file)) if isinstance(row, Row))


def _texts(folder: Path | None) -> Iterator[str]:
    """All label files of a folder and those below it."""
    for parent, names in walk(folder) if folder else ():
        yield from (os.path.join(parent, name) for name in names if name.lower().endswith(".txt"))


class Labels:
    """Label files by their path below a folder, else by their mere name where only one has it."""

    def __init__(self, folder: Path | None, pictures: Iterable[str]) -> None:
        """`pictures`: all of the split, below their folder."""
        self.folder, self.stems, self.names = folder, Stems(pictures), Stems(map(os.path.basename, pictures))
        self.files = [os.path.relpath(path, folder) for path in _texts(folder)]
        plain = [(os.path.basename(stem_of(file)), file) for file in self.files]
        count = Counter(name for name, _ in {(name, stem_of(file)) for name, file in plain})
        self.texts = Texts((stem_of(file), file) for file in self.files)
        self.plain = Texts((name, file) for name, file in plain if count[name] == 1)

    def of(self, picture: str) -> list[str]:
        """The label files of a picture below the folder of pictures, the one that counts first."""
        stem = stem_of(picture)
        return self.texts.of(stem, self.stems) or self.plain.of(os.path.basename(stem), self.names)


def told_beside(file: Path) -> tuple[list[str], dict[int, str]]:
    """The lines before the rows of a label file, and the flag of each row that has one, by its line."""
    lines = read_text(file, _LABEL_LIMIT).decode(errors="surrogateescape").splitlines()
    rows = ((number, line.split()) for number, line in enumerate(lines, 1))
    flags = {number: fields[-1] for number, fields in rows if len(fields) > 9 and fields[-1] in FLAGS}
    return [line for line in lines[:_HEADERS] if _HEADER.match(line)], flags


def parse(file: Path) -> Iterator[tuple[int, Row | str]]:
    """(line number, row or what is wrong with it) of a label file; DataError if it cannot be read."""
    text = read_text(file, _LABEL_LIMIT).decode(errors="surrogateescape")
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not (number <= _HEADERS and _HEADER.match(line)):
            yield number, parse_row(line)


def parse_row(line: str) -> Row | str:
    """A row, or in words what is wrong with it."""
    fields = line.split()
    rest = fields[8:]
    if not rest:
        return f"expected 8 numbers, a class and a flag, found {len(fields)} fields"
    flag = len(rest) > 1 and rest[-1] in FLAGS
    name = " ".join(rest[:-1] if flag else rest).strip("'\" ")
    try:
        corners = np.array([float(field) for field in fields[:8]]).reshape(4, 2)
    except ValueError:
        return "a corner is not a number"
    if not is_text(name):
        return f"the class {ascii(name)[:60]} is not UTF-8"
    return Row(corners, name, rest[-1] if flag else "") if name else "the class has no name"


class _Reader:
    """Reads one split."""

    def __init__(self, source: Path, split: str, where: Split, names: Names, request: Request) -> None:
        self.source, self.split, self.where, self.names = source, split, where, names
        self.columns = request.columns()
        self.log, self.builder = Log(split), IndexBuilder(Path(os.path.abspath(source)), self.columns)
        self.rows = self.refused = 0
        self.hint = hints(names.listed)

    def read(self) -> Index:
        pictures = [os.path.relpath(path, self.where.images) for path in self._images()]
        labels = Labels(self.where.labels, pictures)
        used: set[str] = set()
        others: set[str] = set()
        for picture in pictures:
            path, found, label = os.path.join(self.where.images, picture), labels.of(picture), None
            if found:
                label = os.path.join(labels.folder or "", found[0])
                say_capitals(self.log, path, stem_of(picture), found)
                self.log.add("label-shared", path, label, int(found[0] in used))
                used.add(found[0])
                others.update(found[1:])
            self._image(path, label)
        if not len(self.builder):
            raise empty_split(self.source, self.split, str(self.where.images), self.log)
        for file in sorted(set(labels.files) - used - others):
            self.log.add("label-without-image", os.path.join(labels.folder or "", file))
        if not used:
            where = self.where.labels or f"{self.source}, where there is no labelTxt of {self.split}"
            no_labels(self.split, f"looked in {where}", self.log)
        if self.refused and self.refused == self.rows:
            self.log.add("rows-none", self.source, f"{self.rows} rows")
        self.log.about("object-malformed", self.rows)
        index = self.builder.build(self.names.listed, tuple(range(len(self.names.listed))), self.log.findings())
        return replace(index, folders=tuple(folder for folder in (self.where.images, self.where.labels) if folder))

    def _images(self) -> Iterator[str]:
        for parent, names in walk(self.where.images):
            for name in names:
                if is_image(name):
                    yield os.path.join(parent, name)
                elif name.lower().endswith(OTHER_PICTURES):
                    self.log.add("image-format", os.path.join(parent, name))

    def _image(self, path: str, label: str | None) -> None:
        """Adds a picture and its rows; whatever is wrong with either concerns no other picture."""
        header = probe(path, self.log)
        if header is None:
            return
        if label is None:
            self.log.add("label-missing", path)
        try:
            rows = list(parse(Path(label))) if label else []
        except DataError as error:
            self.log.add("label-unreadable", str(error))
            return
        self.builder.image(path, header.size, page=label if label and "origin" in self.columns else "")
        canvas = Canvas(header.size, self.log, self.columns)
        for number, row in rows:
            self._row(row, canvas, f"{label}:{number}", number)

    def _row(self, row: Row | str, canvas: Canvas, where: str, number: int) -> None:
        self.rows += 1
        if isinstance(row, str):
            self.refused += 1
            self.log.add("object-malformed", where, row)
            return
        label = self.names.find(row.name)
        if label is None:
            self.log.add("class-id", where, f"class {row.name!r}{self.hint(row.name)}")
            return
        if row.name != self.names.listed[label]:
            self.log.add("name-spelled", where, f"{row.name!r} is {self.names.listed[label]!r}")
        placed = canvas.place(Drawn(box=bounds([row.corners]), corners=row.corners, origin=number), where)
        if placed is None:
            return
        if row.difficult:
            self.log.add("ignored", where)
        self.builder.object(label, placed[0], row.difficult, **placed[1])

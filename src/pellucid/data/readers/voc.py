"""Pascal VOC: JPEGImages, Annotations/*.xml and ImageSets/Main/{train,val,test}.txt.

Corners count pixels from 1, both included, in files of the VOC challenge itself (`database` names VOC); elsewhere they are edges.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from ...errors import DataError, MissingFileError
from ...rules import did_you_mean
from ..findings import Log
from ..images import SUFFIXES
from ..index import DataSet, Index, IndexBuilder
from .base import ALIASES, Request, empty_split, inside, probe, read_text, splits_of, walk
from .place import Canvas, Drawn, turn_of

DELIVERS = ("boxes",)
WHOLE = DELIVERS  # what is read where all is asked for
_XML_LIMIT, _LIST_LIMIT = 16 << 20, 1 << 28
_DEEP = 64  # elements within each other


def found_in(folder: Path) -> bool:
    return (folder / "Annotations").is_dir() and (folder / "JPEGImages").is_dir()


def read(source: Path, request: Request) -> DataSet:
    """The data set of a VOC folder; classes are the lines of classes.txt, or else the names in all its lists, sorted."""
    request.deliverable(DELIVERS, "VOC")
    lists = {split: source / "ImageSets" / "Main" / f"{alias}.txt" for split, names in ALIASES.items() for alias in reversed(names)}
    present = tuple(split for split, file in lists.items() if file.is_file())
    splits = splits_of(request, present, source / "ImageSets" / "Main")
    pictures = source / "JPEGImages"
    files = {os.path.relpath(os.path.join(parent, name), pictures) for parent, names in walk(pictures) for name in names}
    stems = {split: _stems(lists[split], source, files) for split in present}
    pages = {split: {stem: page_of(source, stem) for stem in stems[split]} for split in present}
    classes = _class_names(source, [page for split in present for page in pages[split].values()])
    indexes = {split: _Split(source, split, classes, request.columns()).read(pages[split], files) for split in splits}
    return DataSet(source, "voc", indexes, classes, tuple(range(len(classes))))


@dataclass(frozen=True)
class Page:
    """One XML file."""

    path: Path
    root: ElementTree.Element | None
    trouble: str = ""  # why there is no root; "" where there is no file


def _stems(file: Path, source: Path, files: set[str]) -> list[str]:
    lines = [line.strip() for line in read_text(file, _LIST_LIMIT).decode(errors="surrogateescape").splitlines()]
    stems = [_stem(source, line, files) for line in lines if line]
    for number, stem in enumerate(stems, 1):
        inside(source, stem, f"{file}:{number}")
    return stems


def _stem(source: Path, line: str, files: set[str]) -> str:
    """The name of a picture: of a line with blanks all of it, or all before the flag at its end, where there is such a file."""
    for stem in (line, line.rpartition(" ")[0].strip()) if " " in line else ():
        if _picture(stem, files) or (source / "Annotations" / f"{stem}.xml").is_file():
            return stem
    return line.split()[0]


def _picture(stem: str, files: set[str]) -> str | None:
    """The picture of that name."""
    return next((stem + suffix for suffix in (*SUFFIXES, *map(str.upper, SUFFIXES)) if stem + suffix in files), None)


def page_of(source: Path, stem: str) -> Page:
    path = source / "Annotations" / f"{stem}.xml"
    try:
        text = read_text(path, _XML_LIMIT)
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            return Page(path, None, "has a DOCTYPE")
        root = ElementTree.fromstring(text)
        return Page(path, None, f"elements more than {_DEEP} deep") if _deeper(root) else Page(path, root)
    except MissingFileError:
        return Page(path, None)
    except DataError as error:
        return Page(path, None, str(error))
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        return Page(path, None, str(error))


def _deeper(root: ElementTree.Element) -> bool:
    """Whether elements lie deeper within each other than any real file's."""
    level = [root]
    for _ in range(_DEEP):
        level = [child for element in level for child in element]
        if not level:
            return False
    return True


def _class_names(source: Path, pages: list[Page]) -> tuple[str, ...]:
    listed = source / "classes.txt"
    if listed.is_file():
        names = read_text(listed, _LIST_LIMIT).decode(errors="replace").splitlines()
        return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    found = {_text(item, "name") for page in pages if page.root is not None for item in page.root.findall("object")}
    names = sorted(found - {""})
    if not names:
        raise DataError(f"{source}: expected named objects in Annotations/*.xml, found none; add them or a classes.txt.")
    return tuple(names)


def _text(element: ElementTree.Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


class _Split:
    """Reads one list of pictures."""

    def __init__(self, source: Path, split: str, classes: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.source, self.classes, self.columns = source, classes, columns
        self.contiguous = {name: i for i, name in enumerate(classes)}
        self.split, self.log, self.builder = split, Log(split), IndexBuilder(Path(os.path.abspath(source)), columns)

    def read(self, pages: dict[str, Page], files: set[str]) -> Index:
        folder = self.source / "JPEGImages"
        for stem, page in pages.items():
            self._image(os.path.join(folder, _picture(stem, files) or f"{stem}.jpg"), page)
        if not len(self.builder):
            raise empty_split(self.source, self.split, str(folder), self.log)
        index = self.builder.build(self.classes, tuple(range(len(self.classes))), self.log.findings())
        return replace(index, folders=(folder, self.source / "Annotations"))

    def _image(self, path: str, page: Page) -> None:
        header = probe(path, self.log)
        if header is None:
            return
        if page.root is None and page.trouble:
            self.log.add("label-unreadable", page.path, page.trouble)
            return
        self.builder.image(path, header.size)
        if page.root is None:
            self.log.add("label-missing", path)
            return
        canvas = Canvas(header.size, self.log, self.columns, turn=turn_of(stated_size(page.root), header, self.log, path))
        first = first_pixel(page.root)
        for number, item in enumerate(page.root.findall("object"), 1):
            self._object(item, f"{page.path}: object {number}", first, canvas, number)

    def _object(self, item: ElementTree.Element, where: str, first: int, canvas: Canvas, number: int) -> None:
        name = _text(item, "name")
        if name not in self.contiguous:
            self.log.add("class-id", where, f"class {name!r}{did_you_mean([name], self.classes)}")
            return
        try:
            x1, y1, x2, y2 = (float(_text(item, f"bndbox/{tag}")) for tag in ("xmin", "ymin", "xmax", "ymax"))
        except ValueError:
            self.log.add("object-malformed", where, "xmin, ymin, xmax, ymax are not four numbers")
            return
        placed = canvas.place(Drawn((x1 - first, y1 - first, x2, y2), origin=number), where)
        if placed is not None:
            ignored = difficult(item)
            if ignored:
                self.log.add("ignored", where)
            self.builder.object(self.contiguous[name], placed[0], ignored, **placed[1])


def difficult(item: ElementTree.Element) -> bool:
    """Whether an object is marked as difficult."""
    return _text(item, "difficult") not in ("", "0")


def first_pixel(root: ElementTree.Element) -> int:
    """The number of the first pixel in the corners of a file."""
    return 1 if "VOC" in (root.findtext("source/database") or "") else 0


def stated_size(root: ElementTree.Element) -> tuple[int, int] | None:
    try:
        return int(root.findtext("size/height") or 0), int(root.findtext("size/width") or 0)
    except ValueError:
        return None

"""Pascal VOC: JPEGImages, Annotations/*.xml and ImageSets/Main/{train,val,test}.txt; without any of these all pictures are of train.

Corners count pixels from 1, both included, in files of the VOC challenge itself (`database` names VOC); elsewhere they are edges.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

from ...errors import DataError, MissingFileError
from ..findings import Log
from ..images import SUFFIXES
from ..index import DataSet, Index, IndexBuilder
from .base import ALIASES, Request, empty_split, hints, inside, is_image, no_labels, probe, read_lines, read_text, splits_of, walk
from .labels import Stems, Texts, say_capitals, stem_of
from .place import Canvas, Drawn, turn_of

DELIVERS = ("boxes",)
WHOLE = DELIVERS  # what is read where all is asked for
_XML_LIMIT, _LIST_LIMIT = 16 << 20, 1 << 28
_DEEP = 64  # elements within each other
_COMMENT = re.compile(rb"<!--(.*?)-->", re.DOTALL)
_PROLOG = re.compile(rb"(<\?.*?\?>|<!--.*?-->|\s)*", re.DOTALL)
EASY = ("", "0", "0.0", "false", "no", "none")  # of `difficult`


def found_in(folder: Path) -> bool:
    return (folder / "Annotations").is_dir() and (folder / "JPEGImages").is_dir()


def read(source: Path, request: Request) -> DataSet:
    """The data set of a VOC folder; classes are the lines of classes.txt, or else the names in all its lists, sorted."""
    request.deliverable(DELIVERS, "VOC")
    lists = {split: source / "ImageSets" / "Main" / f"{alias}.txt" for split, names in ALIASES.items() for alias in reversed(names)}
    listed = tuple(split for split, file in lists.items() if file.is_file())
    present = listed or ("train",)
    splits = splits_of(request, present, source / "ImageSets" / "Main")
    files, texts = set(_below(source / "JPEGImages")), Texts.among(_below(source / "Annotations"), ".xml")
    pictures = Stems(filter(is_image, files))
    stems = {split: _stems(lists[split], source, files, texts) for split in listed} or {
        "train": sorted(stem_of(file) for file in files if is_image(file))
    }
    labels = {stem: texts.of(stem, pictures) for split in present for stem in stems[split]}
    pages = {split: {stem: page_of(source / "Annotations", stem, labels[stem]) for stem in stems[split]} for split in present}
    classes = _class_names(source, [page for split in present for page in pages[split].values()])
    indexes = {split: _Split(source, split, classes, request.columns()).read(pages[split], files) for split in splits}
    log, named = Log(), {file for found in labels.values() for file in found}
    for file in texts.files():
        log.add("label-without-image", source / "Annotations" / file, count=stem_of(file) not in pictures and file not in named)
    return DataSet(source, "voc", indexes, classes, tuple(range(len(classes))), log.findings())


def _below(folder: Path) -> Iterator[str]:
    """All files of a folder and those below it, as seen from it."""
    for parent, names in walk(folder):
        inner = os.path.relpath(parent, folder)
        yield from names if inner == "." else (os.path.join(inner, name) for name in names)


@dataclass(frozen=True)
class Page:
    """One XML file."""

    path: Path
    root: ElementTree.Element | None
    trouble: str = ""  # why there is no root; "" where there is no file
    labels: list[str] = field(default_factory=list)  # files below Annotations that might be it, the one that is read first


def _stems(file: Path, source: Path, files: set[str], texts: Texts) -> list[str]:
    lines = [line.strip() for line in read_text(file, _LIST_LIMIT).decode(errors="surrogateescape").splitlines()]
    stems = [_stem(line, files, texts) for line in lines if line]
    for number, stem in enumerate(stems, 1):
        inside(source, stem, f"{file}:{number}")
    return stems


def _stem(line: str, files: set[str], texts: Texts) -> str:
    """The name of a picture: of a line with blanks all of it, or all before the flag at its end, where there is such a file."""
    for stem in (line, line.rpartition(" ")[0].strip()) if " " in line else ():
        if _picture(stem, files) or texts.of(stem, Stems([stem])):
            return stem
    return line.split()[0]


def _picture(stem: str, files: set[str]) -> str | None:
    """The picture of that name."""
    return next((stem + suffix for suffix in (*SUFFIXES, *map(str.upper, SUFFIXES)) if stem + suffix in files), None)


def page_of(folder: Path, stem: str, labels: list[str]) -> Page:
    """The first of the files of a picture in Annotations."""
    path = folder / (labels[0] if labels else f"{stem}.xml")
    try:
        return Page(path, root_of(path), "", labels)
    except MissingFileError:
        return Page(path, None)
    except (DataError, ElementTree.ParseError, ValueError, RecursionError) as error:
        return Page(path, None, str(error), labels)


def root_of(path: Path) -> ElementTree.Element:
    """The outermost element of a file, with all comments in it; a DataError, or an error of the parser, where there is none to be read."""
    text = read_text(path, _XML_LIMIT)
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise DataError("has a DOCTYPE")
    said = b"<!--" in text  # a parser that keeps comments takes twice as long
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True)) if said else None
    root: ElementTree.Element = ElementTree.fromstring(text, parser)
    if _deeper(root):
        raise DataError(f"elements more than {_DEEP} deep")
    if said:  # also before and behind it
        around = _PROLOG.match(text)[0] + text.rpartition(b"</")[2]  # type: ignore[index]
        for place, comment in enumerate(_COMMENT.findall(around)):
            root.insert(place, ElementTree.Comment(comment.decode(errors="replace")))
    return root


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
        return tuple(read_lines(listed, _LIST_LIMIT))
    found = {text_of(item, "name") for page in pages if page.root is not None for item in page.root.findall("object")}
    names = sorted(found - {""})
    if not names:
        raise DataError(f"{source}: expected named objects in Annotations/*.xml, found none; add them or a classes.txt.")
    return tuple(names)


def is_comment(element: ElementTree.Element) -> bool:
    return not isinstance(element.tag, str)


def text_of(element: ElementTree.Element, tag: str) -> str:
    """The text of an element within one, less what comments say; "" where there is none."""
    found = element.find(tag)
    if found is None or not len(found):
        return "" if found is None else (found.text or "").strip()
    return "".join(part for part in (found.text, *(child.tail for child in found if is_comment(child))) if part).strip()


class _Split:
    """Reads one list of pictures."""

    def __init__(self, source: Path, split: str, classes: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.source, self.classes, self.columns = source, classes, columns
        self.contiguous, self.hint = {name: i for i, name in enumerate(classes)}, hints(classes)
        self.split, self.log, self.builder = split, Log(split), IndexBuilder(Path(os.path.abspath(source)), columns)

    def read(self, pages: dict[str, Page], files: set[str]) -> Index:
        folder = self.source / "JPEGImages"
        for stem, page in pages.items():
            self._image(os.path.join(folder, _picture(stem, files) or f"{stem}.jpg"), stem, page)
        if not len(self.builder):
            raise empty_split(self.source, self.split, str(folder), self.log)
        if self.log.count("label-missing") == len(self.builder):
            no_labels(self.split, f"looked in {self.source / 'Annotations'}", self.log)
        index = self.builder.build(self.classes, tuple(range(len(self.classes))), self.log.findings())
        return replace(index, folders=(folder, self.source / "Annotations"))

    def _image(self, path: str, stem: str, page: Page) -> None:
        header = probe(path, self.log)
        if header is None:
            return
        if page.labels:
            say_capitals(self.log, path, stem, page.labels)
        if page.root is None and page.trouble:
            self.log.add("label-unreadable", page.path, page.trouble)
            return
        self.builder.image(path, header.size, page=page.path if page.root is not None and "origin" in self.columns else "")
        if page.root is None:
            self.log.add("label-missing", path)
            return
        canvas = Canvas(header.size, self.log, self.columns, turn=turn_of(stated_size(page.root), header, self.log, path))
        first = first_pixel(page.root)
        for number, item in enumerate(page.root.findall("object"), 1):
            self._object(item, f"{page.path}: object {number}", first, canvas, number)

    def _object(self, item: ElementTree.Element, where: str, first: int, canvas: Canvas, number: int) -> None:
        name = text_of(item, "name")
        if name not in self.contiguous:
            self.log.add("class-id", where, f"class {name!r}{self.hint(name)}")
            return
        try:
            box = item.find("bndbox")
            x1, y1, x2, y2 = (float(text_of(box, side)) for side in ("xmin", "ymin", "xmax", "ymax") if box is not None)
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
    """Whether an object is marked as difficult, in any words but those for no."""
    return text_of(item, "difficult").lower() not in EASY


def first_pixel(root: ElementTree.Element) -> int:
    """The number of the first pixel in the corners of a file."""
    return 1 if "VOC" in text_of(root, "source/database") else 0


def stated_size(root: ElementTree.Element) -> tuple[int, int] | None:
    try:
        return int(text_of(root, "size/height") or 0), int(text_of(root, "size/width") or 0)
    except ValueError:
        return None

"""Pascal VOC: JPEGImages, Annotations/*.xml, ImageSets/Main/{split}.txt and classes.txt; boxes whose sides are edges of pixels."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from ..readers.voc import difficult, first_pixel, stated_size, text_of
from .base import Item, Plan, Thing, Writer, put_picture, stem_of
from .originals import VocFiles


@dataclass
class Voc(Writer):
    """All splits share their folders."""

    HOLDS = frozenset({"ignored"})
    one_folder = True

    def __post_init__(self) -> None:
        self.files = VocFiles(self.dataset.source) if self.dataset.format == "voc" else None

    def picture(self, split: str, name: str) -> str:
        return f"JPEGImages/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        height, width = item.size
        old = self.files.page(item.index, item.row) if self.files else None
        root = ElementTree.Element("annotation") if old is None else old
        first, found = first_pixel(root), root.findall("object")
        turned = old is not None and stated_size(root) == (width, height) != (height, width)
        for entry in found:
            root.remove(entry)
        _leaf(root, "filename", os.fsencode(item.name).decode(errors="replace"))
        for tag, value in (("width", width), ("height", height), ("depth", text_of(root, "size/depth") or 3)):
            _leaf(_element(root, "size"), tag, value)
        for thing in things:
            entry = found[thing.origin - 1] if found and thing.origin else ElementTree.Element("object")
            root.append(entry)
            self.object(entry, thing, first)
            parts = entry.findall("part") if turned else []
            for part in parts:
                entry.remove(part)
            self.lost.add("dropped", f"{item.name}: part", len(parts))
        ElementTree.indent(root)
        self.text(f"Annotations/{stem_of(item.name)}.xml", ElementTree.tostring(root, encoding="unicode") + "\n")

    def object(self, entry: ElementTree.Element, thing: Thing, first: int) -> None:
        """Name, flag and corners, in a file whose first pixel has the number `first`."""
        _leaf(entry, "name", self.dataset.names[thing.label])
        if difficult(entry) != thing.ignore or entry.find("difficult") is None:
            _leaf(entry, "difficult", int(thing.ignore))
        x1, y1, x2, y2 = thing.box
        for tag, side in zip(("xmin", "ymin", "xmax", "ymax"), (x1 + first, y1 + first, x2, y2), strict=True):
            _leaf(_element(entry, "bndbox"), tag, f"{side:.3f}".rstrip("0").rstrip("."))

    def finish(self, plan: Plan) -> None:
        for split, items in plan.items():
            self.text(f"ImageSets/Main/{split}.txt", "".join(stem_of(item.name) + "\n" for item in items))
        self.text("classes.txt", "".join(name + "\n" for name in self.dataset.names))
        if self.files:
            self.others(self.files, plan)

    def others(self, files: VocFiles, plan: Plan) -> None:
        """Copy lists and masks that nothing here reads, where they say of the copy what they said of the old pictures; count the rest."""
        old = {split: [files.stem(index, row) for row in range(len(index))] for split, index in self.dataset.splits.items()}
        new = {split: [stem_of(item.name) for item in items] for split, items in plan.items()}
        own = {stem for items in plan.values() for item in items if (stem := files.stem(item.index, item.row)) == stem_of(item.name)}
        for path in files.lists():
            fits = old == new and files.named(path) <= own
            self.keep(path, files.source, fits)
        for path in files.masks():
            self.keep(path, files.source, "/".join(path.relative_to(files.source).with_suffix("").parts[1:]) in own)

    def keep(self, path: Path, source: Path, fits: bool) -> None:
        if fits:
            put_picture(path, self.out / path.relative_to(source), link=False)
        self.lost.add("dropped", path, int(not fits))


def _element(parent: ElementTree.Element, tag: str) -> ElementTree.Element:
    """The element of that name, made where there is none."""
    found = parent.find(tag)
    return ElementTree.SubElement(parent, tag) if found is None else found


def _leaf(parent: ElementTree.Element, tag: str, value: object) -> None:
    leaf = _element(parent, tag)
    leaf.text = str(value)
    for comment in leaf.findall("*"):
        comment.tail = None

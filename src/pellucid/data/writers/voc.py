"""Pascal VOC: JPEGImages, Annotations/*.xml, ImageSets/Main/{split}.txt and classes.txt; boxes whose sides are edges of pixels."""

from __future__ import annotations

from xml.etree import ElementTree

from .base import Item, Plan, Thing, Writer, stem_of


class Voc(Writer):
    """All splits share their folders."""

    HOLDS = frozenset({"ignored"})
    one_folder = True

    def picture(self, split: str, name: str) -> str:
        return f"JPEGImages/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        height, width = item.size
        root = ElementTree.Element("annotation")
        _leaf(root, "filename", item.name)
        size = ElementTree.SubElement(root, "size")
        for tag, value in (("width", width), ("height", height), ("depth", 3)):
            _leaf(size, tag, value)
        for thing in things:
            entry = ElementTree.SubElement(root, "object")
            _leaf(entry, "name", self.dataset.names[thing.label])
            _leaf(entry, "difficult", int(thing.ignore))
            corners = ElementTree.SubElement(entry, "bndbox")
            for tag, side in zip(("xmin", "ymin", "xmax", "ymax"), thing.box, strict=True):
                _leaf(corners, tag, f"{side:.3f}".rstrip("0").rstrip("."))
        ElementTree.indent(root)
        self.text(f"Annotations/{stem_of(item.name)}.xml", ElementTree.tostring(root, encoding="unicode") + "\n")

    def finish(self, plan: Plan) -> None:
        for split, items in plan.items():
            self.text(f"ImageSets/Main/{split}.txt", "".join(stem_of(item.name) + "\n" for item in items))
        self.text("classes.txt", "".join(name + "\n" for name in self.dataset.names))


def _leaf(parent: ElementTree.Element, tag: str, value: object) -> None:
    ElementTree.SubElement(parent, tag).text = str(value)

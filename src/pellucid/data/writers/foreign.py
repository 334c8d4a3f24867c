"""Fields that only the format of a data set holds: their names, one for each time that a file says one, where another format is written.

A value that says nothing (empty, null, false; a default such as VOC's pose Unspecified) is no field. Fields of objects that are left out go
with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from ..index import DataSet
from ..readers.base import KEYS, read_yaml
from ..readers.labelme import group_of, key_of, kind_of
from ..readers.voc import EASY, is_comment, text_of
from .base import Item, Thing, Writer
from .coco import ANNOTATION, CATEGORY, IMAGE, LISTS
from .originals import CocoFiles, DotaFiles, Fields, LabelMeFiles, VocFiles

DEEP = 3  # mappings within each other that are opened: what lies deeper counts as one field


class Foreign:
    """Fields of one data set; a subclass knows its format."""

    def __init__(self, dataset: DataSet, writer: Writer) -> None:
        self.dataset, self.writer = dataset, writer
        self.unposed = writer.points is None or "keypoints" not in writer.holds  # no names of points are written

    def whole(self) -> Iterator[str]:
        """What the set says once."""
        if self.dataset.source.is_file():
            config = read_yaml(self.dataset.source)
            own = {str(key): value for key, value in config.items() if key not in KEYS}
            pointed = any(index.keypoints for index in self.dataset.splits.values())
            points = {key: config[key] for key in ("kpt_names", "flip_idx", "kpt_sigmas") if key in config}
            yield from leaves("", {**own, **(points if pointed and self.unposed else {})})

    def page(self, item: Item, things: Sequence[Thing]) -> Iterator[str]:
        """What is said of one picture and of those of its objects that are written."""
        yield from ()


class OfYolo(Foreign):
    """Rows hold nothing else; the YAML may."""


class OfDota(Foreign):
    """Header lines, and the second degree of difficulty."""

    def __init__(self, dataset: DataSet, writer: Writer) -> None:
        super().__init__(dataset, writer)
        self.files = DotaFiles()

    def page(self, item: Item, things: Sequence[Thing]) -> Iterator[str]:
        lines, flags = self.files.page(item.index, item.row)
        for name, _, value in (line.partition(":") for line in lines):
            if value.strip().lower() not in ("", "null", "none"):
                yield name.strip()
        yield from ("difficult 2" for thing in things if flags.get(thing.origin) == "2")


class OfVoc(Foreign):
    """Elements and attributes of the XML."""

    SIDES = tuple(f"object/bndbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
    HELD = frozenset(("filename", "size/width", "size/height", "size/depth", "object/name", "object/difficult", *SIDES))
    FLAGS = ("segmented", "truncated", "occluded", "difficult")  # 0 says nothing
    SILENT = ("", "unspecified", "unknown")

    def __init__(self, dataset: DataSet, writer: Writer) -> None:
        super().__init__(dataset, writer)
        self.files = VocFiles(dataset.source)

    def whole(self) -> Iterator[str]:
        folders = ("/".join(path.relative_to(self.files.source).parts[:-1]) for path in (*self.files.lists(), *self.files.masks()))
        yield from folders

    def page(self, item: Item, things: Sequence[Thing]) -> Iterator[str]:
        root = self.files.page(item.index, item.row)
        if root is None:
            return
        kept = {thing.origin for thing in things}
        for number, entry in enumerate(root.findall("object"), 1):
            if number not in kept:
                root.remove(entry)
            elif text_of(entry, "difficult").lower() not in (*EASY, "1", "true", "yes"):
                yield "object/difficult"  # the degree
        yield from self.fields(root, "")

    def fields(self, element: ElementTree.Element, path: str, again: bool = False) -> Iterator[str]:
        """The names of attributes and elements below one; `again`: another of that name was held in its place."""
        yield from (f"{path}/@{key}".lstrip("/") for key, value in element.attrib.items() if value.strip())
        seen: set[str] = set()
        for child in element:
            tag = "comment" if is_comment(child) else child.tag
            name = f"{path}/{tag}" if path else tag
            twice = again or (name in seen and name != "object")
            held = name in self.HELD and not twice
            seen.add(name)
            if (held and (child.attrib or len(child))) or (len(child) and (not path or name == "object/bndbox")):
                yield from self.fields(child, name, twice)
            elif not held and self.says(child):
                yield name

    def says(self, element: ElementTree.Element) -> bool:
        """Whether an element holds anything but a default."""
        text = ("".join(element.itertext()) if len(element) else element.text or "").strip().lower()
        silent = text in self.SILENT or (element.tag in self.FLAGS and text in ("0", "false"))
        return not silent or any(value.strip() for part in element.iter() for value in part.attrib.values())


class OfLabelMe(Foreign):
    """Flags, descriptions and groups; the shape of a circle."""

    HELD = ("version", "shapes", "imagePath", "imageData", "imageHeight", "imageWidth")
    SHAPE = ("label", "points", "group_id", "shape_type", "flags")

    def __init__(self, dataset: DataSet, writer: Writer) -> None:
        super().__init__(dataset, writer)
        self.files = LabelMeFiles()

    def page(self, item: Item, things: Sequence[Thing]) -> Iterator[str]:
        page = self.files.page(item.index, item.row, points=False)
        yield from leaves("", {key: value for key, value in page.items() if key not in self.HELD})
        shapes = page.get("shapes", [])
        keys = [key_of(shape, number) for number, shape in enumerate(shapes, 1)]
        kept = {keys[thing.origin - 1] for thing in things}
        groups = {group for _, group in kept}
        outlined = "polygons" in self.writer.holds and "polygons" in item.index.columns
        for shape, key in zip(shapes, keys, strict=True):
            point = kind_of(shape) == "point"
            if key in kept or (point and kept and (group_of(shape) is None or key[1] in groups)):
                yield from self.of_shape(shape, "hidden" if point else "difficult")
                self.writer.lost.add("circles", item.name, int(outlined and kind_of(shape) == "circle"))
        yield from self.of_groups(shapes, keys, kept)

    def of_shape(self, shape: Fields, told: str) -> Iterator[str]:
        """The fields of a shape, whose flag `told` is held."""
        flags = shape.get("flags")
        if isinstance(flags, dict) and flags.get(told) is True:
            flags = {key: value for key, value in flags.items() if key != told}
        rest = {key: value for key, value in shape.items() if key not in self.SHAPE}
        odd = {} if group_of(shape) is not None else {"group_id": shape.get("group_id")}
        yield from leaves("shape", {"flags": flags, **odd, **rest})

    def of_groups(self, shapes: Sequence[Fields], keys: Sequence[tuple[str, Any]], kept: set[tuple[str, Any]]) -> Iterator[str]:
        """A group id a written object, where it does not merely join the parts and points of that one."""
        members: dict[Any, list[tuple[str, Any] | None]] = {}  # group -> the object of each shape, None for a point
        for shape, key in zip(shapes, keys, strict=True):
            if group_of(shape) is not None:
                members.setdefault(key[1], []).append(None if kind_of(shape) == "point" else key)
        for _, group in kept:
            mates = members.get(group, [])
            if mates and (len(mates) == 1 or len(set(mates) - {None}) > 1 or isinstance(group, str)):
                yield "shape/group_id"


class OfCoco(Foreign):
    """Whatever else a document, its pictures, objects and classes say; ids of objects that are not merely their place in the file."""

    SILENT: Mapping[str, Sequence[object]] = {"annotation/ignore": (0,), "category/supercategory": ("none",)}

    def __init__(self, dataset: DataSet, writer: Writer) -> None:
        super().__init__(dataset, writer)
        self.files = CocoFiles()

    def page(self, item: Item, things: Sequence[Thing]) -> Iterator[str]:
        if item.index.file not in self.files.documents:
            self.files = CocoFiles()  # one document in memory
            yield from self.head(self.files.document(item.index))
        image = self.files.image(item.index, item.row)
        yield from leaves("image", {key: value for key, value in image.items() if key not in IMAGE})
        yield from ("image/id" for _ in range(isinstance(image.get("id"), str)))
        for thing in things:
            note = self.files.annotation(item.index, thing.origin)
            yield from self.told("annotation", note, ANNOTATION)
            if note.get("id") not in (None, thing.origin, thing.origin - 1):
                yield "annotation/id"

    def head(self, document: Fields) -> Iterator[str]:
        yield from leaves("", {key: value for key, value in document.items() if key not in LISTS})
        anew = CATEGORY[:2] if self.unposed and any(index.keypoints for index in self.dataset.splits.values()) else CATEGORY
        for category in document["categories"]:
            yield from self.told("category", category, anew)

    def told(self, name: str, fields: Fields, held: Sequence[str]) -> Iterator[str]:
        rest = {key: value for key, value in fields.items() if key not in held}
        yield from leaves(name, {key: value for key, value in rest.items() if value not in self.SILENT.get(f"{name}/{key}", ())})


def leaves(name: str, value: object, depth: int = 0) -> Iterator[str]:
    """The names of what a value of JSON or YAML says, joined by slashes; a list of values is one field, of mappings those of each."""
    nested = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    if depth < DEEP and nested and all(isinstance(entry, dict) for entry in nested):
        for entry in nested:
            for key, inner in entry.items():
                yield from leaves(f"{name}/{' '.join(str(key).split())[:80]}".lstrip("/"), inner, depth + 1)
    elif not (value is None or value is False or value in ("", [], {}) or (isinstance(value, str) and not value.strip())):
        yield name


FOREIGN: Mapping[str, type[Foreign]] = {"coco": OfCoco, "yolo": OfYolo, "dota": OfDota, "voc": OfVoc, "labelme": OfLabelMe}

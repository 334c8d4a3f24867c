"""What the files of a data set say beyond what an Index holds, read again where a copy in the same format is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..index import Index
from ..readers import coco, dota, labelme, voc
from ..readers.base import ALIASES

Fields = dict[str, Any]


class DotaFiles:
    """Header lines and flags of label files."""

    def page(self, index: Index, row: int) -> tuple[list[str], dict[int, str]]:
        """The lines before the rows of a picture, and the flag of each row by its line."""
        path = index.page(row)
        return dota.told_beside(path) if path else ([], {})


class VocFiles:
    """The XML of pictures."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def page(self, index: Index, row: int) -> ElementTree.Element | None:
        """The root of the file of a picture, where it has one."""
        path = index.page(row)
        return voc.root_of(path) if path else None

    def masks(self) -> Iterator[Path]:
        """Pictures of masks, which nothing here reads."""
        for folder in ("SegmentationClass", "SegmentationObject"):
            yield from sorted(path for path in (self.source / folder).rglob("*.*") if path.is_file())

    def lists(self) -> Iterator[Path]:
        """Lists of pictures beside those of the splits."""
        main, read = self.source / "ImageSets" / "Main", {f"{alias}.txt" for aliases in ALIASES.values() for alias in aliases}
        found = sorted(path for path in (self.source / "ImageSets").rglob("*.txt") if path.is_file())
        yield from (path for path in found if path.parent != main or path.name not in read)

    def named(self, path: Path) -> set[str]:
        """The pictures in a list: the first words of its lines."""
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return {line.split()[0] for line in lines if line.strip()}

    def stem(self, index: Index, row: int) -> str:
        """The name of a picture as lists have it."""
        return Path(os.path.relpath(index.path(row), self.source / "JPEGImages")).with_suffix("").as_posix()


class LabelMeFiles:
    """The pages of pictures."""

    def page(self, index: Index, row: int, points: bool = True) -> Fields:
        """The document of a picture, with or without the points of its shapes, {} where it has none."""
        path = index.page(row)
        return labelme.document_of(path, points) if path else {}


class CocoFiles:
    """Whole documents, each loaded once."""

    def __init__(self) -> None:
        self.documents: dict[Path, Fields] = {}
        self.images: dict[Path, dict[object, Fields]] = {}

    def document(self, index: Index) -> Fields:
        assert index.file is not None
        if index.file not in self.documents:
            self.documents[index.file] = coco.load(index.file)
            self.images[index.file] = self._by_id_and_path(index, self.documents[index.file]["images"])
        return self.documents[index.file]

    @staticmethod
    def _by_id_and_path(index: Index, images: list[Any]) -> dict[object, Fields]:
        found: dict[object, Fields] = {}
        for image in images:
            if isinstance(image, dict) and isinstance(image.get("file_name"), str):
                path = os.path.normpath(os.path.join(index.root, image["file_name"].replace("\\", "/")))
                found.setdefault(path, image)
                if isinstance(image.get("id"), int):
                    found.setdefault((image["id"], path), image)
        return found

    def image(self, index: Index, row: int) -> Fields:
        """What is said of a picture."""
        self.document(index)
        images, path = self.images[index.file], os.path.normpath(index.path(row))  # type: ignore[index]
        return images.get((int(index.ids[row]), path)) or images.get(path) or {}

    def annotation(self, index: Index, origin: int) -> Fields:
        """The annotation at a place, from 1."""
        found = self.document(index)["annotations"][origin - 1] if origin else {}
        return found if isinstance(found, dict) else {}

    def category(self, indexes: list[Index], number: int) -> Fields:
        """What the first file says of a class."""
        for index in indexes:
            for category in self.document(index)["categories"]:
                if category["id"] == number:
                    return dict(category)
        return {}

"""COCO JSON: annotations/instances_{split}*.json with picture folders, {split}/_annotations.coco.json, or a YAML with {split}_json.

Class ids inside follow the user's category ids in rising order; those ids and the names are kept for everything that goes out.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import DataError, MissingFileError
from ...geometry.keypoints import KeypointSpec
from ..findings import Log
from ..index import DataSet, Index, IndexBuilder
from .base import ALIASES, Request, empty_split, inside, probe, root_of, splits_of
from .coco_objects import drawn_of, points_of
from .place import Canvas, turn_of

DELIVERS = ("boxes", "polygons", "keypoints")
WHOLE = DELIVERS  # what is read where all is asked for
_OTHER = ("image_info", "captions", "panoptic", "stuff")  # COCO files without objects
_JSON_COST = 8  # bytes of memory that a byte of JSON takes while it is read


@dataclass(frozen=True)
class Part:
    """The files of one split."""

    json: Path
    folders: tuple[Path, ...]  # where its pictures may lie, likeliest first


def found_in(folder: Path) -> bool:
    """Whether a folder holds a COCO file of any split, be it one too many."""
    return any(_fitting(folder / "annotations", split) for split in ALIASES) or bool(_parts_in(folder, (), ()))


def read(source: Path, request: Request, config: dict | None = None) -> DataSet:
    """The data set of a folder, or of a YAML that names `train` folders and `train_json` files."""
    request.deliverable(DELIVERS, "COCO")
    wanted = tuple(ALIASES) if request.splits is None else request.splits
    parts = _parts_in(source, wanted, () if request.whole else request.needs) if config is None else _parts_of(source, config)
    if not parts:
        raise DataError(f"{source}: expected annotation files as `train_json` and `val_json`, found none; name them.")
    splits = splits_of(request, tuple(parts), source)
    documents = {split: load(parts[split].json) for split in splits}
    others = {part.json: _categories(part.json) for split, part in parts.items() if split not in splits}
    listed = {parts[split].json: documents[split]["categories"] for split in splits} | others
    classes = _class_map(listed)
    log = Log()
    points = points_of(listed, config or {}, log) if "keypoints" in request.needs else None
    if "keypoints" in request.needs and points is None and request.whole:
        request = replace(request, needs=tuple(kind for kind in request.needs if kind != "keypoints"))
    if "keypoints" in request.needs and points is None:
        names = ", ".join(path.name for path in listed)
        raise DataError(f"{source}: expected categories with a list `keypoints` in {names}, found none; name a file that has them.")
    for name in sorted({name for name in classes.values() if list(classes.values()).count(name) > 1}):
        log.add("name-twice", source, repr(name))
    if request.whole:
        _count_unread(parts, log)
    indexes = {split: _Split(split, parts[split], classes, request, points).read(documents.pop(split)) for split in splits}
    return DataSet(source, "coco", indexes, tuple(classes.values()), tuple(classes), log.findings())


def _parts_in(folder: Path, wanted: Sequence[str], needs: Sequence[str]) -> dict[str, Part]:
    parts = {}
    for split, aliases in ALIASES.items():
        for alias in aliases:
            if (folder / alias / "_annotations.coco.json").is_file():
                parts[split] = Part(folder / alias / "_annotations.coco.json", (folder / alias,))
                break
        else:
            file = _annotation_file(folder / "annotations", split, needs, split in wanted)
            if file:
                parts[split] = Part(file, _picture_folders(folder, file, split))
    return parts


def _annotation_file(folder: Path, split: str, needs: Sequence[str], wanted: bool) -> Path | None:
    """The JSON of a split by its name and by what is needed of it; DataError if several fit equally and it is wanted."""
    fit = _fitting(folder, split)
    posed = [path for path in fit if "keypoint" in path.stem.lower()]
    plain = [path for path in fit if path not in posed]
    named = [path for path in plain if path.stem.lower().startswith("instances")]
    preferred = (posed or fit) if "keypoints" in needs else (named or plain or fit)
    if len(preferred) > 1 and wanted:
        names = ", ".join(path.name for path in preferred)
        raise DataError(f"{folder}: expected one annotation file for {split!r}, found {names}; name it in a YAML as `{split}_json`.")
    return preferred[0] if len(preferred) == 1 else None


def _count_unread(parts: dict[str, Part], log: Log) -> None:
    """A finding for each file beside the one that was read of a split, as person_keypoints beside instances."""
    read = {part.json for part in parts.values()}
    for split, part in parts.items():
        for path in _fitting(part.json.parent, split, others=True):
            if path not in read:
                log.add("file-beside", path, f"{part.json.name} is read")


def _fitting(folder: Path, split: str, others: bool = False) -> list[Path]:
    """The files of objects that name a split; `others`: of captions and the like too."""
    words = re.compile(rf"(^|[^a-z])({'|'.join(ALIASES[split])})(?![a-z])")
    named = [path for path in sorted(folder.glob("*.json")) if words.search(path.stem.lower())]
    return [path for path in named if others or not path.stem.startswith(_OTHER)]


def _picture_folders(root: Path, file: Path, split: str) -> tuple[Path, ...]:
    word = file.stem.split("_")[-1]  # train2017 of instances_train2017
    names = dict.fromkeys((word, *ALIASES[split]))
    named = [folder for name in names for folder in (root / name, root / "images" / name)]
    return (*named, root / "images", root)


def _parts_of(source: Path, config: dict) -> dict[str, Part]:
    root = root_of(source, config)
    parts = {}
    named = [(split, alias) for split, aliases in ALIASES.items() for alias in aliases if config.get(f"{alias}_json")]
    for split, alias in named:
        folder, file = config.get(alias) or "", config[f"{alias}_json"]
        if not isinstance(folder, str) or not isinstance(file, str):
            raise DataError(f"{source}: expected `{alias}` and `{alias}_json` as one folder and one file; correct them.")
        parts[split] = Part(root / file, (Path(os.path.abspath(root / folder)),))
    return parts


def load(path: Path) -> dict:
    """The JSON document; DataError if it is not one, or would not fit into memory."""
    try:
        size, memory = path.stat().st_size, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if size * _JSON_COST > memory:
            raise DataError(f"{path}: {size / 1e9:.1f} GB of JSON do not fit into {memory / 1e9:.0f} GB of memory; split the file.")
        with open(path, "rb") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: expected a COCO annotation file, but it is not there; check the path.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions.") from None
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected JSON ({str(error)[:120]}); the file may be cut off, fetch it again.") from None
    for key in ("images", "annotations", "categories"):
        if not isinstance(document, dict) or not isinstance(document.get(key), list):
            raise DataError(f"{path}: expected COCO JSON with a list `{key}`, found none; export it again.")
    return document


def _categories(path: Path) -> list:
    """The categories of a file of which nothing else is needed: cut out where possible, since such files can be large."""
    data = path.read_bytes()
    _, key, tail = data.partition(b'"categories"')
    if key and b'"categories"' not in tail:
        with contextlib.suppress(ValueError, RecursionError):
            text, _ = codecs.utf_8_decode(tail[: 1 << 24].lstrip(b": \r\n\t"), "strict", False)  # a letter that is cut off is left out
            found, _ = json.JSONDecoder().raw_decode(text)
            if isinstance(found, list):
                return found
    return load(path)["categories"]


def _class_map(listed: dict[Path, list]) -> dict[int, str]:
    """One map of category ids to names for all splits; DataError where two files disagree."""
    classes: dict[int, str] = {}
    owners: dict[int, list[Path]] = {}
    for path, categories in listed.items():
        for category in categories:
            if not isinstance(category, dict) or type(category.get("id")) is not int or not 0 <= category["id"] < 1 << 31:
                raise DataError(f"{path}: expected categories with a whole number `id`, got {str(category)[:80]}; correct it.")
            name = str(category.get("name", category["id"]))
            known = classes.setdefault(category["id"], name)
            if known != name and path in owners.get(category["id"], ()):
                raise DataError(f"{path}: category {category['id']} is {known!r} and {name!r}; give one of them another id.")
            owners.setdefault(category["id"], []).append(path)
            if known != name:
                raise DataError(
                    f"{path}: category {category['id']} is {name!r} here but {known!r} in {owners[category['id']][0].name}; agree."
                )
    if not classes:
        raise DataError(f"{next(iter(listed))}: expected at least one category, found none; add `categories`.")
    return dict(sorted(classes.items()))


class _Split:
    """Reads one annotation file."""

    def __init__(self, split: str, part: Part, classes: dict[int, str], request: Request, points: KeypointSpec | None) -> None:
        self.split, self.part, self.classes = split, part, classes
        self.columns, self.points, self.loose = request.columns(area=True), points, request.whole
        self.contiguous = {category: i for i, category in enumerate(classes)}
        self.log = Log(split)
        self.places: dict[int, int] = {}  # of annotations, where a copy is to be written

    def read(self, document: dict) -> Index:
        images = [image for image in document["images"] if self._well_formed(image)]
        folder = self._folder([image["file_name"] for image in images])
        builder = IndexBuilder(Path(os.path.abspath(folder)), self.columns, self.points)
        annotations = document.pop("annotations")
        if "origin" in self.columns:
            self.places = {id(annotation): place for place, annotation in enumerate(annotations, 1)}
        objects = self._by_image(annotations, images)
        seen: set = set()
        for position, image in enumerate(images):
            if image["id"] in seen:
                self.log.add("image-twice", f"{self.part.json}: image {image['id']}")
                continue
            seen.add(image["id"])
            self._image(builder, folder, image, position, objects.get(image["id"], ()))
        if not len(builder):
            raise empty_split(self.part.json, self.split, str(folder), self.log)
        index = builder.build(tuple(self.classes.values()), tuple(self.classes), self.log.findings())
        return replace(index, file=self.part.json, folders=() if folder == self.part.json.parent.parent else (folder,))

    def _well_formed(self, image: object) -> bool:
        good = isinstance(image, dict) and isinstance(image.get("file_name"), str) and isinstance(image.get("id"), int | str)
        if not good:
            self.log.add("object-malformed", self.part.json, f"image {str(image)[:60]}")
        return good

    def _folder(self, names: Sequence[str]) -> Path:
        """The folder that holds most of the first pictures."""
        first = names[:50]
        held = [sum((folder / name.replace("\\", "/")).is_file() for name in first) for folder in self.part.folders]
        if first and not max(held):
            tried = ", ".join(str(folder) for folder in self.part.folders)
            raise MissingFileError(f"{self.part.json}: expected the pictures ({first[0]}, ...) in one of {tried}; put them there.")
        return self.part.folders[held.index(max(held))]

    def _by_image(self, annotations: list, images: list[dict]) -> dict[object, list[dict]]:
        grouped: dict[object, list[dict]] = {image["id"]: [] for image in images}
        for annotation in annotations:
            owner = annotation.get("image_id") if isinstance(annotation, dict) else None
            if not isinstance(owner, int | str):
                self.log.add("object-malformed", self.part.json, str(annotation)[:60])
            elif owner not in grouped:
                self.log.add("object-without-image", self._where(annotation), f"image_id {owner!r}")
            else:
                grouped[owner].append(annotation)
        return grouped

    def _where(self, annotation: dict) -> str:
        return f"{self.part.json}: annotation {annotation.get('id')}"

    def _image(self, builder: IndexBuilder, folder: Path, image: dict, position: int, annotations: Sequence[dict]) -> None:
        path = inside(folder, image["file_name"], f"{self.part.json}: image {image['id']}")
        header = probe(path, self.log)
        if header is None:
            return
        image_id = image["id"]
        if type(image_id) is not int or not -(1 << 63) <= image_id < 1 << 63:
            self.log.add("id-replaced", f"{self.part.json}: image {image_id!r}")
            image_id = position
        height, width = image.get("height"), image.get("width")
        stated = (height, width) if isinstance(height, int) and isinstance(width, int) else None
        turn = turn_of(stated, header, self.log, path)
        canvas = Canvas(header.size, self.log, self.columns, self.points, turn, self.loose)
        builder.image(path, header.size, image_id)
        for annotation in annotations:
            self._object(builder, canvas, annotation)

    def _object(self, builder: IndexBuilder, canvas: Canvas, annotation: dict) -> None:
        """Adds an annotation, or a finding if it cannot be used."""
        category, where = annotation.get("category_id"), self._where(annotation)
        if type(category) is not int or category not in self.contiguous:
            self.log.add("class-id", where, f"category_id {category!r}")
            return
        try:
            drawn = drawn_of(annotation, self.columns, self.points)
        except ValueError as error:
            self.log.add("object-malformed", where, str(error)[:160])
            return
        placed = canvas.place(replace(drawn, origin=self.places.get(id(annotation), 0)), where)
        if placed is None:
            return
        if not drawn.area and ("keypoints" in self.columns or annotation.get("area") is not None):
            self.log.add("area-missing", where)
        if drawn.ignore:
            self.log.add("ignored", where)
        builder.object(self.contiguous[category], placed[0], drawn.ignore, **placed[1])

"""Data sets written in any of the formats that are read: into a new folder, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, UsageError
from ...geometry.keypoints import KeypointSpec
from ...rules import writable
from ..images import unique_name
from ..index import DataSet, Index
from ..readers.base import ALIASES
from .base import Item, Plan, Writer, put_picture, things
from .coco import Coco
from .dota import Dota
from .foreign import FOREIGN
from .labelme import LabelMe
from .names import check_names
from .voc import Voc
from .yolo import Yolo

__all__ = ["WRITERS", "Item", "Plan", "Written", "check_apart", "check_out", "plan_of", "write_dataset"]

WRITERS: dict[str, type[Writer]] = {"coco": Coco, "yolo": Yolo, "dota": Dota, "voc": Voc, "labelme": LabelMe}
_PICTURES = {"images", "jpegimages"}
_SPLITS = {alias for aliases in ALIASES.values() for alias in aliases}


@dataclass
class Written:
    """What was written, and what the format could not hold."""

    out: str
    format: str
    images: dict[str, int] = field(default_factory=dict)  # by split
    objects: dict[str, int] = field(default_factory=dict)  # by split, ignored ones too
    lost: dict[str, dict[str, Any]] = field(default_factory=dict)  # code -> count, places
    sentences: list[str] = field(default_factory=list)


def check_out(out: str | Path) -> Path:
    """The folder to write into, links followed; UsageError unless it is new or empty, and not the current one."""
    target = Path(os.path.realpath(os.path.expanduser(out)))
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"out: expected a new or empty folder, got {target}, which holds files; choose another")
    if target.is_dir() and os.path.samefile(target, os.curdir):
        raise UsageError(f"out: expected a folder other than the current one, got {target}; name a new one in it")
    return target


def check_apart(target: Path, dataset: DataSet) -> None:
    """UsageError where what is written into a folder, or as a file, would be read as a part of the data set."""
    for folder in (folder for index in dataset.splits.values() for folder in index.folders):
        if target.is_relative_to(os.path.realpath(folder)):
            raise UsageError(
                f"out: expected a place outside the folders that {dataset.source} is read from, got {target}, which is in {folder}; "
                "choose another"
            )


def plan_of(to: str, dataset: DataSet, rows: Iterable[tuple[str, Index, int]]) -> Plan:
    """Items of (new split, index, row): names and ids are kept where no other image of the split, or of the format's folder, has them."""
    plan: dict[str, list[Item]] = {}
    taken: dict[str, set[Path]] = {}
    ids: dict[str, set[int]] = {}
    last: dict[str, int] = {}  # the largest id of each split
    for split, index, row in rows:
        name = _inner_name(index, row, strip=dataset.format != "coco")
        free = unique_name(Path(name), taken.setdefault("" if WRITERS[to].one_folder else split, set()))
        used, image_id = ids.setdefault(split, set()), int(index.ids[row])
        if image_id in used:
            image_id = last[split] + 1
        used.add(image_id)
        last[split] = max(image_id, last.get(split, image_id))
        plan.setdefault(split, []).append(Item(index, row, free.as_posix(), image_id))
    return plan


def _inner_name(index: Index, row: int, strip: bool) -> str:
    """The name of a picture below the folder of its split; `strip` says whether it still has that folder and `images` before it."""
    path = index.path(row)
    name = path.relative_to(index.root) if path.is_relative_to(index.root) else Path(path.name)
    parts = list(name.parts)
    folders = [part.lower() for part in parts[:-1]]
    if strip and (held := [i for i, part in enumerate(folders) if part in _PICTURES]):
        parts = parts[held[-1] + 1 :]
    if strip and len(parts) > 1 and parts[0].lower() in _SPLITS:
        parts.pop(0)
    return "/".join(parts)


def write_dataset(to: str, dataset: DataSet, plan: Plan, out: Path, link: bool = False, strict: bool = False) -> Written:
    """Write the pictures of `plan` and their labels in the format `to`; DataError if `strict` and something cannot be held.

    DataError too where the format's reader would not find a class by its name again. All is written beside `out` first and moved there at
    the end, so that a failure leaves nothing.
    """
    check_names(to, dataset)
    with writable(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        written = _write(to, dataset, plan, partial, link)
        if strict and written.sentences:
            raise DataError(f"{out}: expected a format that holds all, got {written.sentences[0]}; choose another or leave strict out")
        partial.chmod(0o777 & ~_umask())
        os.replace(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    written.out = str(out)
    return written


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write(to: str, dataset: DataSet, plan: Plan, folder: Path, link: bool) -> Written:
    kind, points = _kinds(plan)
    writer = WRITERS[to](dataset, folder, points, kind)
    report = Written(str(folder), to)
    _count_names(writer, plan)
    foreign = FOREIGN[dataset.format](dataset, writer) if dataset.format != to else None
    writer.lost.add_fields(foreign.whole() if foreign else ())
    for split, items in plan.items():
        report.images[split], report.objects[split] = len(items), 0
        for item in items:
            put_picture(item.index.path(item.row), folder / writer.picture(split, item.name), link)
            kept = writer.count(item, things(item.index, item.row))
            writer.page(split, item, kept)
            writer.lost.add_fields(foreign.page(item, kept) if foreign else ())
            report.objects[split] += len(kept)
    writer.finish(plan)
    report.lost = {code: {"count": count, "places": places} for code, (count, places) in writer.lost.found().items()}
    report.sentences = writer.lost.sentences(dataset.format, to)
    return report


def _kinds(plan: Plan) -> tuple[str, KeypointSpec | None]:
    """What rows of one kind should hold, and the keypoints where any is labelled."""
    indexes = list({id(item.index): item.index for items in plan.values() for item in items}.values())
    has: Callable[[str], list[Index]] = lambda kind: [index for index in indexes if kind in index.columns]  # noqa: E731
    posed = [index for index in has("keypoints") if index.columns["keypoints"].values[2::3].any()]
    if posed:
        return "keypoints", posed[0].keypoints
    if has("rboxes"):
        return "rboxes", None
    outlined = any(np.diff(index.columns["polygons"].start).any() for index in has("polygons"))
    return ("polygons" if outlined else "boxes"), None


def _count_names(writer: Writer, plan: Plan) -> None:
    """Ids that the format does not hold."""
    names, ids = writer.dataset.names, writer.dataset.category_ids
    if "ids" not in writer.holds:
        writer.lost.add("class-ids", writer.dataset.source, sum(i != k for k, i in enumerate(ids)))
        writer.lost.add("class-names", writer.dataset.source, len(names) - len(set(names)))
    for item in (item for items in plan.values() for item in items):
        path, own = item.index.path(item.row), int(item.index.ids[item.row])
        if own != item.row:  # not merely its position
            writer.lost.add("image-ids", path, int("images" not in writer.holds))
            writer.lost.add("image-ids-taken", path, int("images" in writer.holds and own != item.image_id))
        writer.lost.add("renamed", path, int(Path(item.name).stem != path.stem))

"""A data set of rotated boxes cut into tiles on disk: a new data set of the same format; the old one is only read."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..errors import DataError, PellucidWarning, UsageError
from ..rules import writable
from ..types import Instances
from .dataset import original_size
from .findings import settle
from .images import read_image, unique_name
from .index import DataSet, Index
from .readers import read_dataset
from .readers.base import other_keys
from .tiles import Window, crop, cut_rows, windows
from .writers import check_apart
from .writers.base import Thing, things
from .writers.originals import DotaFiles
from .writers.yolo import as_yaml

LOSSY = (".jpg", ".jpeg")  # tiles of these are JPEG too, of all others PNG
QUALITY = 95


@dataclass
class Report:
    """What was written."""

    out: str
    format: str
    images: dict[str, int] = field(default_factory=dict)  # by split: pictures that were cut
    tiles: dict[str, int] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)  # over all tiles
    ignored: dict[str, int] = field(default_factory=dict)  # parts and difficult ones
    left_out: dict[str, int] = field(default_factory=dict)  # of these, those that the format cannot hold


@dataclass(frozen=True)
class Form:
    """How a format lays out a data set."""

    images: str  # folder of a split's pictures
    labels: str
    keeps_ignored: bool
    row: Any  # (label, corners in pixels, (height, width), flag of difficulty, DataSet) -> a line
    head: Any  # DataSet -> {file: text}


def write_tiles(data: str | Path, out: str | Path, tile: int, overlap: int, visible: float, strict: bool = False) -> Report:
    """Cut every picture of every split of a DOTA or YOLO data set of rotated boxes into tiles, with the labels that they hold.

    Corners keep their places, beyond the tile's edge too, and their order; each tile has the header lines of its picture's DOTA label.
    Parts of objects (see `tiles.cut`) are difficult in DOTA, to the degree that the whole one was where it was, and left out in YOLO.
    UsageError: another format, or `out` is not empty.
    """
    dataset = read_dataset(data, ("boxes", "rboxes"), copy=True)
    _check_rows(dataset)
    settle(dataset.all_findings(), strict)
    if dataset.format not in FORMS:
        raise UsageError(f"{data}: expected a DOTA or YOLO data set, got {dataset.format}; convert it first")
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"out: expected a new or empty folder, got {target}, which holds files; choose another")
    check_apart(Path(os.path.realpath(target)), dataset)
    with writable(target):
        target.mkdir(parents=True, exist_ok=True)
    report = Report(str(target), dataset.format)
    sources: dict[str, dict[str, list[Any]]] = {}
    for split, index in dataset.splits.items():
        writer = _Writer(dataset, split, target, report)
        sources[split] = dict(writer.write(index, tile, overlap, visible))
    for name, text in FORMS[dataset.format].head(dataset).items():
        (target / name).write_text(text, encoding="utf-8")
    (target / "tiles.json").write_text(json.dumps({"tile": tile, "overlap": overlap, "from": sources}, indent=1), encoding="utf-8")
    return report


def _check_rows(dataset: DataSet) -> None:
    """DataError where rows are of another task, since tiles without their objects would teach that there are none."""
    other = next((finding for finding in dataset.all_findings() if finding.code in ("row-outline", "row-box")), None)
    if other:
        raise DataError(
            f"{dataset.source}: expected rows of four corners, got {other.sentence}; make a set of oriented boxes of them first "
            "(`pellucid data convert to=dota` with the task= that they are for)."
        )


class _Writer:
    """Writes the tiles of one split."""

    def __init__(self, dataset: DataSet, split: str, out: Path, report: Report) -> None:
        self.dataset, self.split, self.report = dataset, split, report
        self.form = FORMS[dataset.format]
        self.files = DotaFiles() if dataset.format == "dota" else None
        self.images, self.labels = (out / part.format(split=split) for part in (self.form.images, self.form.labels))
        for folder in (self.images, self.labels):
            folder.mkdir(parents=True)
        for counts in (report.images, report.tiles, report.objects, report.ignored, report.left_out):
            counts[split] = 0

    def write(self, index: Index, tile: int, overlap: int, visible: float) -> Iterator[tuple[str, list[Any]]]:
        """(name of a tile, [its picture, left, top]) of all tiles."""
        taken: set[Path] = set()
        for row in range(len(index)):
            path = index.path(row)
            stem = unique_name(Path(path.name), taken).stem
            self.report.images[self.split] += 1
            image = read_image(path)
            whole, (header, flags) = things(index, row), self.files.page(index, row) if self.files else ([], {})
            places = windows(*original_size(index, row), tile, overlap)
            for place, (objects, rows) in zip(places, cut_rows(index.instances(row), places, visible), strict=True):
                name = f"{stem}__{place.left}_{place.top}"
                self._picture(name, crop(image, place), path.suffix.lower() in LOSSY)
                self._labels(name, objects, [whole[i] for i in rows.tolist()], place, header, flags)
                yield name, [os.path.relpath(path, index.root), place.left, place.top]

    def _picture(self, name: str, pixels: np.ndarray, lossy: bool) -> None:
        picture = Image.fromarray(np.ascontiguousarray(pixels))
        if lossy:
            picture.save(self.images / f"{name}.jpg", quality=QUALITY)
        else:
            picture.save(self.images / f"{name}.png")

    def _labels(
        self, name: str, objects: Instances, whole: Sequence[Thing], place: Window, header: Sequence[str], flags: Mapping[int, str]
    ) -> None:
        """The label file of a tile; `whole`: its objects as they are in their picture."""
        assert objects.ignore is not None
        ignored = int(objects.ignore.sum())
        self.report.tiles[self.split] += 1
        self.report.ignored[self.split] += ignored
        lines = list(header)
        for thing, hard in zip(whole, objects.ignore.tolist(), strict=True):
            if hard and not self.form.keeps_ignored:
                self.report.left_out[self.split] += 1
                continue
            flag = flags.get(thing.origin, "0")
            assert thing.corners is not None
            corners = thing.corners - (place.left, place.top)
            flag = flag if (flag != "0") == hard else str(int(hard))
            lines.append(self.form.row(thing.label, corners, (place.height, place.width), flag, self.dataset))
            self.report.objects[self.split] += 1
        (self.labels / f"{name}.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def dota_row(label: int, corners: np.ndarray, size: tuple[int, int], flag: str, dataset: DataSet) -> str:
    """x y of four corners, class, difficult."""
    numbers = " ".join(f"{value:.3f}" for value in corners.reshape(-1))
    return f"{numbers} {dataset.names[label]} {flag}"


def yolo_row(label: int, corners: np.ndarray, size: tuple[int, int], flag: str, dataset: DataSet) -> str:
    """The user's class id, and x y of four corners as shares of width and height."""
    shares = corners / (size[1], size[0])
    return " ".join((str(dataset.category_ids[label]), *(f"{value:.7f}" for value in shares.reshape(-1))))


def dota_head(dataset: DataSet) -> Mapping[str, str]:
    return {"classes.txt": "".join(name + "\n" for name in dataset.names)}


def yolo_head(dataset: DataSet) -> Mapping[str, str]:
    splits = "".join(f"{split}: images/{split}\n" for split in dataset.splits)
    names = "".join(f"  {i}: {json.dumps(name)}\n" for i, name in zip(dataset.category_ids, dataset.names, strict=True))
    try:
        others = as_yaml(other_keys(dataset.source))
    except DataError as error:
        warnings.warn(f"{error} None of its keys that are not read here stand in the tiles' data.yaml.", PellucidWarning, stacklevel=3)
        others = ""
    return {"data.yaml": f"{splits}names:\n{names}{others}"}


FORMS = {
    "dota": Form("{split}/images", "{split}/labelTxt", True, dota_row, dota_head),
    "yolo": Form("images/{split}", "labels/{split}", False, yolo_row, yolo_head),
}

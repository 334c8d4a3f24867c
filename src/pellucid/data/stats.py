"""data stats: what a data set holds, in numbers that decide how it is trained, and pictures that are there twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .doctor import TINY, sides, table
from .hashes import duplicates
from .index import DataSet, Index
from .readers import read_dataset

SMALL, LARGE = 32.0, 96.0  # pixels at the training size, as COCO calls objects small, medium and large
EXAMPLES = 5


@dataclass(frozen=True)
class Stats:
    """What `to_dict` holds, printable."""

    content: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(self.content, ensure_ascii=False, indent=2)

    def lines(self) -> list[str]:
        """Text for people: pictures, objects, classes, copies."""
        head = self.content
        splits = head["splits"]
        told = "three numbers: of pictures the least, the median, the most; of objects 5 %, the median, 95 %"
        lines = [f"{head['data']} ({head['format']}, {len(head['classes'])} classes)", told, ""]
        names = ["split", "images", "empty", "objects", "ignored", "width", "height", "objects per image"]
        lines += table(names, iter([[name, *_picture_cells(part)] for name, part in splits.items()]))
        names = ["split", f"side at {head['imgsz']}", f"under {TINY:g} px", "small", "medium", "large", "width / height"]
        lines += ["", *table(names, iter([[name, *_object_cells(part)] for name, part in splits.items()]))]
        rows = ([str(row["id"]), row["name"], *(f"{row[s]['objects']} in {row[s]['images']}" for s in splits)] for row in head["classes"])
        lines += ["", *table(["id", "class", *(f"{s}: objects in images" for s in splits)], iter(rows)), ""]
        return [*lines, *self._copies()]

    def _copies(self) -> Iterator[str]:
        copies = self.content["copies"]
        if copies is None:
            yield "copies of pictures were not looked for"
            return
        yield f"{copies['images']} pictures in {copies['groups']} groups show the same; {copies['leaks']} groups are in more than one split"
        for name in ("leak_examples", "examples"):
            for group in copies[name]:
                yield f"  {'in several splits: ' if name == 'leak_examples' else ''}{' = '.join(group)}"


def stats(data: str | Path | DataSet, needs: tuple[str, ...] = ("boxes",), imgsz: int = 640, copies: bool = True) -> Stats:
    """Counts and distributions of all splits; DataError where the data cannot be read.

    Sides and shares are of objects that count, at the training size `imgsz`; each distribution is {min, p5, median, p95, max}.
    """
    dataset = data if isinstance(data, DataSet) else read_dataset(data, needs)
    splits = {name: _split(index, imgsz) for name, index in dataset.splits.items()}
    head = {"data": str(dataset.source), "format": dataset.format, "imgsz": imgsz}
    found = _copies(dataset.splits) if copies else None
    return Stats({**head, "splits": splits, "classes": _classes(dataset), "copies": found})


def _split(index: Index, imgsz: int) -> dict[str, Any]:
    counted = ~index.ignore
    lengths = sides(index, imgsz)[counted].astype(np.float64)
    side = np.sqrt(lengths.prod(1))
    small, large = side < SMALL, side >= LARGE
    boxes = index.boxes[counted].astype(np.float64)
    wide, high = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    per_image = np.bincount(index.image_rows()[counted], minlength=len(index))
    return {
        "images": len(index),
        "empty": index.empty(),
        "objects": int(counted.sum()),
        "ignored": int(index.ignore.sum()),
        "width": _spread(index.sizes[:, 1]),
        "height": _spread(index.sizes[:, 0]),
        "objects_per_image": _spread(per_image),
        "side": _spread(side),
        "aspect": _spread(wide / np.maximum(high, 1e-6)),
        "tiny": int((lengths.min(1, initial=np.inf) < TINY).sum()),
        "small": int(small.sum()),
        "medium": int((~small & ~large).sum()),
        "large": int(large.sum()),
    }


def _spread(values: np.ndarray) -> dict[str, float] | None:
    """{min, p5, median, p95, max}; None where there is nothing."""
    if not len(values):
        return None
    found = np.percentile(values, (0, 5, 50, 95, 100))
    return dict(zip(("min", "p5", "median", "p95", "max"), (round(float(value), 3) for value in found), strict=True))


def _classes(dataset: DataSet) -> list[dict[str, Any]]:
    """Objects of each class, and pictures with one, by split."""
    rows: list[dict[str, Any]] = [{"id": i, "name": name} for i, name in zip(dataset.category_ids, dataset.names, strict=True)]
    for split, index in dataset.splits.items():
        owners, counted = index.image_rows(), ~index.ignore
        for label, row in enumerate(rows):
            own = counted & (index.labels == label)
            row[split] = {"objects": int(own.sum()), "images": len(np.unique(owners[own]))}
    return rows


def _copies(splits: Mapping[str, Index]) -> dict[str, Any]:
    """Pictures that show the same, within a split and across splits."""
    owners = [(split, index, row) for split, index in splits.items() for row in range(len(index))]
    groups = duplicates([index.path(row) for _, index, row in owners])
    leaks = [group for group in groups if len({owners[i][0] for i in group}) > 1]
    others = [group for group in groups if len({owners[i][0] for i in group}) == 1]

    def shown(some: Sequence[Sequence[int]]) -> list[list[str]]:
        return [
            [f"{owners[i][0]}/{os.path.basename(owners[i][1].path(owners[i][2]))}" for i in group[:EXAMPLES]] for group in some[:EXAMPLES]
        ]

    return {
        "groups": len(groups),
        "images": sum(map(len, groups)),
        "leaks": len(leaks),
        "leaked_images": sum(map(len, leaks)),
        "leak_examples": shown(leaks),
        "examples": shown(others),
    }


def _picture_cells(part: dict[str, Any]) -> list[str]:
    counts = [str(part[name]) for name in ("images", "empty", "objects", "ignored")]
    return [*counts, *(_range(part[name]) for name in ("width", "height", "objects_per_image"))]


def _object_cells(part: dict[str, Any]) -> list[str]:
    shares = [f"{part[name]} ({part[name] / max(part['objects'], 1):.1%})" for name in ("tiny", "small", "medium", "large")]
    side, aspect = part["side"], part["aspect"]
    return [_range(side, "p5", "p95"), *shares, "-" if aspect is None else f"{aspect['p5']:.2f} {aspect['median']:.2f} {aspect['p95']:.2f}"]


def _range(spread: dict[str, float] | None, low: str = "min", high: str = "max") -> str:
    return "-" if spread is None else f"{spread[low]:.0f} {spread['median']:.0f} {spread[high]:.0f}"

"""The data set as flat arrays: no Python object per record, so that forked workers share every page and never grow."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from ..geometry import Boxes
from ..types import Instances
from .findings import Finding


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths end to end: row i is values[start[i]:start[i + 1]]."""

    values: np.ndarray  # (K, ...)
    start: np.ndarray  # (M + 1,) int64

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.start[row] : self.start[row + 1]]

    def take(self, rows: np.ndarray) -> Ragged:
        """The chosen rows, in the order given."""
        return Ragged(self.values[_positions(self.start, rows)], _starts(np.diff(self.start)[rows]))


@dataclass(frozen=True, eq=False)
class Index:
    """n images and their M objects; image i has the objects start[i] to start[i + 1]."""

    root: Path
    names: tuple[str, ...]  # of the contiguous class ids
    category_ids: tuple[int, ...]  # the user's id of each class
    paths: Ragged  # (n) uint8: file names, relative to `root` where they lie under it
    sizes: np.ndarray  # (n, 2) int32: height, width after EXIF
    ids: np.ndarray  # (n,) int64: the user's image ids
    start: np.ndarray  # (n + 1,) int64
    labels: np.ndarray  # (M,) int32 contiguous class ids
    boxes: np.ndarray  # (M, 4) float32 xyxy original pixels
    ignore: np.ndarray  # (M,) bool: crowd or difficult
    columns: Mapping[str, Ragged] = field(default_factory=dict)  # other annotation kinds, one row an object
    findings: tuple[Finding, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def path(self, row: int) -> Path:
        return self.root / os.fsdecode(self.paths[row].tobytes())

    def instances(self, row: int) -> Instances:
        """Objects of one image in its original pixels; `ignore` is filled."""
        own = slice(int(self.start[row]), int(self.start[row + 1]))
        labels = torch.from_numpy(self.labels[own].astype(np.int64))
        boxes = torch.from_numpy(self.boxes[own].copy())
        return Instances(labels, {"boxes": Boxes(boxes)}, ignore=torch.from_numpy(self.ignore[own].copy()))

    def class_counts(self) -> np.ndarray:
        """Objects of each class, ignored ones left out: (classes,) int64."""
        return np.bincount(self.labels[~self.ignore], minlength=len(self.names))

    def image_rows(self) -> np.ndarray:
        """The image of each object: (M,) int64."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def take(self, rows: Sequence[int] | np.ndarray) -> Index:
        """The chosen images, in the order given."""
        rows = np.asarray(rows, dtype=np.int64)
        objects = _positions(self.start, rows)
        return replace(
            self,
            paths=self.paths.take(rows),
            sizes=self.sizes[rows],
            ids=self.ids[rows],
            start=_starts(np.diff(self.start)[rows]),
            labels=self.labels[objects],
            boxes=self.boxes[objects],
            ignore=self.ignore[objects],
            columns={name: column.take(objects) for name, column in self.columns.items()},
        )

    def single_class(self) -> Index:
        """The same objects, all of one class."""
        return replace(self, names=("object",), category_ids=self.category_ids[:1], labels=np.zeros_like(self.labels))

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        ragged = [self.paths, *self.columns.values()]
        arrays = [self.sizes, self.ids, self.start, self.labels, self.boxes, self.ignore]
        return sum(a.nbytes for a in arrays) + sum(r.values.nbytes + r.start.nbytes for r in ragged)


@dataclass(frozen=True, eq=False)
class DataSet:
    """The splits of one data set under one class map."""

    source: Path  # the file or folder that the user named
    format: str  # "yolo", "coco", "voc"
    splits: Mapping[str, Index]
    names: tuple[str, ...]
    category_ids: tuple[int, ...]
    findings: tuple[Finding, ...] = ()  # of the whole set; each Index has its own

    def all_findings(self) -> tuple[Finding, ...]:
        return self.findings + tuple(finding for index in self.splits.values() for finding in index.findings)

    def single_class(self) -> DataSet:
        """The same data with all objects of one class."""
        splits = {name: index.single_class() for name, index in self.splits.items()}
        return replace(self, splits=splits, names=("object",), category_ids=self.category_ids[:1])


class IndexBuilder:
    """Grows the arrays of an Index, image by image; memory is that of the arrays."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        self._blob, self._ends = bytearray(), array("q", [0])
        self._sizes, self._ids, self._start = array("i"), array("q"), array("q", [0])
        self._labels, self._boxes, self._ignore = array("i"), array("f"), array("b")

    def __len__(self) -> int:
        return len(self._ids)

    def image(self, path: str | Path, size: tuple[int, int], image_id: int | None = None) -> None:
        """Begins an image of (height, width) pixels; without an id its position is the id."""
        name = os.fsencode(path)
        self._blob += name[len(self._root) + 1 :] if name.startswith(self._root + b"/") else name
        self._ends.append(len(self._blob))
        self._sizes.extend(size)
        self._ids.append(len(self._ids) if image_id is None else image_id)
        self._start.append(len(self._labels))

    def object(self, label: int, box: Sequence[float], ignore: bool = False) -> None:
        """Adds an object to the image begun last; `box` is xyxy original pixels."""
        self._labels.append(label)
        self._boxes.extend(box)
        self._ignore.append(ignore)
        self._start[-1] = len(self._labels)

    def build(self, names: Sequence[str], category_ids: Sequence[int], findings: tuple[Finding, ...] = ()) -> Index:
        root = Path(os.fsdecode(self._root))
        return Index(
            root=root,
            names=tuple(names),
            category_ids=tuple(category_ids),
            paths=Ragged(np.frombuffer(bytes(self._blob), np.uint8), np.array(self._ends, np.int64)),
            sizes=np.array(self._sizes, np.int32).reshape(-1, 2),
            ids=np.array(self._ids, np.int64),
            start=np.array(self._start, np.int64),
            labels=np.array(self._labels, np.int32),
            boxes=np.array(self._boxes, np.float32).reshape(-1, 4),
            ignore=np.array(self._ignore, np.bool_),
            findings=findings,
        )


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _positions(start: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Positions of all members of the chosen rows, row after row."""
    lengths = np.diff(start)[rows]
    ends = np.cumsum(lengths)
    return np.repeat(start[rows] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)

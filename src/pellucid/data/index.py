"""The data set as flat arrays: no Python object per record, so that forked workers share every page and never grow."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..geometry import Boxes, Shape
from ..geometry.keypoints import KeypointSpec
from ..types import Instances
from .columns import OF_COPIES, SHAPES, Growing, Ragged, finish, positions, starts
from .findings import Finding


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
    columns: Mapping[str, Ragged] = field(default_factory=dict)  # other annotation kinds, one row an object: see `columns`
    findings: tuple[Finding, ...] = ()
    keypoints: KeypointSpec | None = None  # what the column of that name holds
    file: Path | None = None  # of labels, where a split has one
    pages: Ragged | None = None  # (n) uint8, only where a copy is to be written: label files, as `paths`; none is empty
    folders: tuple[Path, ...] = ()  # where pictures and labels were looked for: a file that is put there may become one of them

    def __len__(self) -> int:
        return len(self.ids)

    def path(self, row: int) -> Path:
        return self.root / os.fsdecode(self.paths[row].tobytes())

    def page(self, row: int) -> Path | None:
        """The label file of an image, where it has one of its own and the index was read for a copy."""
        name = b"" if self.pages is None else self.pages[row].tobytes()
        return self.root / os.fsdecode(name) if name else None

    def instances(self, row: int) -> Instances:
        """Objects of one image in its original pixels, with every shape whose column is there; `ignore` is filled."""
        first, last = int(self.start[row]), int(self.start[row + 1])
        own = slice(first, last)
        labels = torch.from_numpy(self.labels[own].astype(np.int64))
        shapes: dict[str, Shape] = {"boxes": Boxes(torch.from_numpy(self.boxes[own].copy()))}
        for name, make in SHAPES.items():
            if name in self.columns:
                shapes[name] = make(self.columns[name].span(first, last), self.keypoints)
        return Instances(labels, shapes, ignore=torch.from_numpy(self.ignore[own].copy()))

    def content(self, position: int) -> tuple[bytes, ...]:
        """All that is known of one object: equal where two objects are the same, whatever their image."""
        own = slice(position, position + 1)
        parts = [column[position] for name, column in sorted(self.columns.items()) if name not in OF_COPIES]
        return tuple((part + 0).tobytes() for part in (self.labels[own], self.boxes[own], self.ignore[own], *parts))  # -0 is 0

    def class_counts(self) -> np.ndarray:
        """Objects of each class, ignored ones left out: (classes,) int64."""
        return np.bincount(self.labels[~self.ignore], minlength=len(self.names))

    def empty(self) -> int:
        """How many images have no object, not even an ignored one."""
        return int((np.diff(self.start) == 0).sum())

    def image_rows(self) -> np.ndarray:
        """The image of each object: (M,) int64."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def take(self, rows: Sequence[int] | np.ndarray) -> Index:
        """The chosen images, in the order given."""
        rows = np.asarray(rows, dtype=np.int64)
        objects = positions(self.start, rows)
        return replace(
            self,
            paths=self.paths.take(rows),
            pages=None if self.pages is None else self.pages.take(rows),
            sizes=self.sizes[rows],
            ids=self.ids[rows],
            start=starts(np.diff(self.start)[rows]),
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
        arrays = [self.sizes, self.ids, self.start, self.labels, self.boxes, self.ignore]
        ragged = [self.paths, *self.columns.values(), *([] if self.pages is None else [self.pages])]
        return sum(part.nbytes for part in arrays) + sum(part.nbytes for part in ragged)


def distinct_names(names: Sequence[str], category_ids: Sequence[int]) -> tuple[str, ...]:
    """The names, those that several classes share with the user's id behind them: what is said of one is not said of another."""
    return tuple(f"{name} (id {i})" if names.count(name) > 1 else name for name, i in zip(names, category_ids, strict=True))


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

    def task_args(self) -> dict[str, Any]:
        """What the data say about a task's arguments: points, dims, sigmas, flip, point_names, skeleton; empty without keypoints."""
        spec = next((index.keypoints for index in self.splits.values() if index.keypoints is not None), None)
        if spec is None:
            return {}
        return {
            "points": len(spec.names),
            "dims": spec.dims,
            "sigmas": list(spec.sigmas),
            "flip": None if spec.flip is None else list(spec.flip),
            "point_names": list(spec.names),
            "skeleton": [list(bone) for bone in spec.skeleton],
        }

    def single_class(self) -> DataSet:
        """The same data with all objects of one class."""
        splits = {name: index.single_class() for name, index in self.splits.items()}
        return replace(self, splits=splits, names=("object",), category_ids=self.category_ids[:1])


class _Names:
    """Grows paths, relative to `root` where they lie under it."""

    def __init__(self, root: bytes) -> None:
        self._root, self._blob, self._ends = root + b"/", bytearray(), array("q", [0])

    def append(self, path: str | Path) -> None:
        self._blob += os.fsencode(path).removeprefix(self._root)
        self._ends.append(len(self._blob))

    def build(self) -> Ragged:
        return Ragged(np.frombuffer(bytes(self._blob), np.uint8), np.array(self._ends, np.int64))


class IndexBuilder:
    """Grows the arrays of an Index, image by image; memory is that of the arrays.

    `columns` names the annotation kinds that every object will have beside its box ("corners" are stored as "rboxes").
    """

    def __init__(self, root: Path, columns: Sequence[str] = (), keypoints: KeypointSpec | None = None) -> None:
        self._root = os.fsencode(root)
        self._paths, self._pages = _Names(self._root), _Names(self._root)
        self._sizes, self._ids, self._start = array("i"), array("q"), array("q", [0])
        self._labels, self._boxes, self._ignore = array("i"), array("f"), array("b")
        self._columns = {name: Growing() for name in columns}
        self._keypoints = keypoints

    def __len__(self) -> int:
        return len(self._ids)

    def image(self, path: str | Path, size: tuple[int, int], image_id: int | None = None, page: str | Path = "") -> None:
        """Begins an image of (height, width) pixels; without an id its position is the id. `page`: its label file, for a copy."""
        self._paths.append(path)
        self._pages.append(page)
        self._sizes.extend(size)
        self._ids.append(len(self._ids) if image_id is None else image_id)
        self._start.append(len(self._labels))

    def object(self, label: int, box: Sequence[float], ignore: bool = False, **columns: Iterable[float] | np.ndarray) -> None:
        """Adds an object to the image begun last; `box` is xyxy original pixels, `columns` the rows of all columns."""
        if columns.keys() != self._columns.keys():
            raise ValueError(f"expected the columns {', '.join(self._columns) or 'none'}, got {', '.join(columns) or 'none'}")
        for name, row in columns.items():
            self._columns[name].append(row)
        self._labels.append(label)
        self._boxes.extend(box)
        self._ignore.append(ignore)
        self._start[-1] = len(self._labels)

    def objects(self, labels: Sequence[int], boxes: np.ndarray, columns: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Adds n objects that count to the image begun last; `boxes` (n, 4), `columns` the rows of each end to end and their lengths."""
        for name, column in self._columns.items():
            column.extend(*columns[name])
        self._labels.extend(labels)
        self._boxes.frombytes(np.ascontiguousarray(boxes, np.float32).tobytes())
        self._ignore.frombytes(bytes(len(labels)))
        self._start[-1] = len(self._labels)

    def build(self, names: Sequence[str], category_ids: Sequence[int], findings: tuple[Finding, ...] = ()) -> Index:
        root = Path(os.fsdecode(self._root))
        columns = dict(finish(name, column.build()) for name, column in self._columns.items())
        return Index(
            root=root,
            names=tuple(names),
            category_ids=tuple(category_ids),
            paths=self._paths.build(),
            pages=pages if len((pages := self._pages.build()).values) else None,
            sizes=np.array(self._sizes, np.int32).reshape(-1, 2),
            ids=np.array(self._ids, np.int64),
            start=np.array(self._start, np.int64),
            labels=np.array(self._labels, np.int32),
            boxes=np.array(self._boxes, np.float32).reshape(-1, 4),
            ignore=np.array(self._ignore, np.bool_),
            columns=columns,
            findings=findings,
            keypoints=self._keypoints,
        )

"""data check fix=OUT: a repaired copy of a data set in a new folder, and what was changed in it, counted; the old one is only read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import DataError
from .columns import starts
from .convert import open_for
from .doctor import repeats
from .findings import CODES, Finding, Log
from .index import DataSet, Index
from .writers import Written, check_apart, check_out, plan_of, write_dataset

# code of a finding -> what the copy has in its place
REPAIRS: dict[str, str] = {
    **dict.fromkeys((code for code, (_, sentence) in CODES.items() if "left out" in sentence), "left out"),
    "class-id": "left out",
    "image-twice": "written once",
    "label-twice": "the label file of the labels folder is kept",
    "label-spelled": "named as its picture",
    "label-cases": "the one that is used is kept",
    "label-shared": "each has a label file of its own",
    "labels-beside": "moved to the labels folder",
    "label-missing": "given an empty label",
    "clipped": "clipped",
    "box-replaced": "the box around the polygon is written",
    "not-rectangle": "the smallest rectangle is written",
    "area-missing": "the area of the polygon or box is written",
    "visibility": "written as 0 or 2",
    "point-outside": "written as absent",
    "point-origin": "written as absent",
    "point-names": "the first class's names are written",
    "size-mismatch": "the file's size is written",
    "exif-frame": "turned upright",
    "path-guess": "the files lie where the new data set says",
    "name-spelled": "spelled as the data set does",
    "id-replaced": "numbered",
    "duplicate": "left out",
    "split-overlap": "left in one split alone, val before test before train",
}
_LAST = ("train", "test", "val")  # of two splits with one picture, the later one here keeps it


@dataclass(frozen=True)
class Repaired:
    """The copy, and what differs in it: (finding of the old data, what was done)."""

    written: Written
    changes: tuple[tuple[Finding, str], ...]

    def to_dict(self) -> dict[str, object]:
        """Stable keys: out, format, images, objects, changes (code, split, count, places, done), lost."""
        changes = [
            {"code": found.code, "split": found.split, "count": found.count, "places": list(found.places), "done": done}
            for found, done in self.changes
        ]
        part = self.written
        return {
            "out": part.out,
            "format": part.format,
            "images": part.images,
            "objects": part.objects,
            "changes": changes,
            "lost": part.lost,
        }

    def lines(self) -> list[str]:
        lines = [
            f"{found.split + ': ' if found.split else ''}{found.count} {CODES[found.code][1].split(';')[0]} [{found.code}]: {done}"
            for found, done in self.changes
        ]
        return [f"{'fixed':8}{line}" for line in [*(lines or ["nothing had to be changed"]), *self.written.sentences]]


def repair(data: str | Path, out: str | Path, needs: tuple[str, ...] | None = None, link: bool = False) -> Repaired:
    """Write what can be used of the data set at `data` to the new folder `out`, in its own format.

    UsageError where `out` holds files; DataError where nothing of a split can be used.
    """
    target = check_out(out)
    dataset = open_for(data, needs)
    check_apart(target, dataset)
    found = list(dataset.all_findings())
    hopeless = next((finding for finding in found if finding.code in ("rows-none", "labels-lost")), None)
    if hopeless:
        raise DataError(f"{data}: expected labels of which some can be kept, got {hopeless.sentence}.")
    splits = {split: _without_repeats(split, index, found) for split, index in dataset.splits.items()}
    rows = list(_owned(splits, found))
    written = write_dataset(dataset.format, dataset, plan_of(dataset.format, dataset, rows), target, link)
    return Repaired(written, tuple((finding, REPAIRS[finding.code]) for finding in found if finding.code in REPAIRS))


def _without_repeats(split: str, index: Index, found: list[Finding]) -> Index:
    """The index less objects that repeat another of their image in all that is known of them."""
    rows, log = index.image_rows(), Log(split)
    again = _exact(rows, index)
    for position in again:
        log.add("duplicate", index.path(rows[position]))
    found += log.findings()
    keep = np.setdiff1d(np.arange(len(index.labels)), again)
    return replace(
        index,
        start=starts(np.bincount(rows[keep], minlength=len(index))),
        labels=index.labels[keep],
        boxes=index.boxes[keep],
        ignore=index.ignore[keep],
        columns={name: column.take(keep) for name, column in index.columns.items()},
    )


def _exact(rows: np.ndarray, index: Index) -> np.ndarray:
    """Positions of objects that equal an earlier one of their image in class, box, ignore mark and every other column."""
    again: list[int] = []
    seen: set[tuple[object, ...]] = set()
    for position in np.flatnonzero(np.isin(rows, rows[repeats(rows, index)])).tolist():
        key = (int(rows[position]), index.content(position))
        if key in seen:
            again.append(position)
        seen.add(key)
    return np.array(again, np.int64)


def _owned(splits: dict[str, Index], found: list[Finding]) -> Iterator[tuple[str, Index, int]]:
    """(split, index, row) of every picture, in one split alone."""
    owner: dict[str, str] = {}
    for split in sorted(splits, key=_LAST.index):
        owner |= {str(splits[split].path(row)): split for row in range(len(splits[split]))}
    log = Log()
    for split, index in splits.items():
        for row in range(len(index)):
            path = str(index.path(row))
            if owner[path] == split:
                yield split, index, row
            else:
                log.add("split-overlap", path, f"{split} and {owner[path]}")
    found += log.findings()


__all__ = ["DataSet", "Repaired", "repair"]

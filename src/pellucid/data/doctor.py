"""Looks a data set over before it is used: what it holds, what is wrong with it, and where."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..geometry.keypoints import KeypointSpec
from .findings import Finding, Log
from .index import DataSet, Index
from .readers import read_dataset

NEEDED = ("train", "val")  # splits
TINY = 3.0  # pixels at the training size under which an object's shorter side cannot be learned


@dataclass(frozen=True)
class SplitSummary:
    """What one split holds."""

    images: int
    empty: int  # images without objects, ignored ones too
    objects: int  # ignored ones left out
    ignored: int
    classes: tuple[int, ...]  # objects of each class
    median_side: float  # of the objects, square root of the area, in pixels at the training size; nan without objects
    labelled: float = float("nan")  # share of the keypoints that are; nan without any


@dataclass(frozen=True)
class Report:
    """The doctor's answer; `exit_code` is 0 clean, 1 with findings, 3 where the data cannot be used as they are."""

    data: str
    format: str
    imgsz: int
    names: tuple[str, ...]
    category_ids: tuple[int, ...]
    splits: dict[str, SplitSummary]
    findings: tuple[Finding, ...]
    keypoints: KeypointSpec | None = None

    @property
    def exit_code(self) -> int:
        levels = {finding.level for finding in self.findings}
        if "fatal" in levels:
            return 3
        return 1 if levels & {"error", "warning"} else 0

    def to_dict(self) -> dict:
        """Stable keys: data, format, imgsz, exit_code, splits, classes, keypoints, findings (code, level, split, count, places, ...)."""
        splits = {name: dataclasses.asdict(part) for name, part in self.splits.items()}
        for part in splits.values():
            part["median_side"] = None if np.isnan(part["median_side"]) else round(part["median_side"], 1)
            part["labelled"] = None if np.isnan(part["labelled"]) else round(part["labelled"], 4)
            del part["classes"]
        findings = [{**dataclasses.asdict(f), "level": f.level, "message": f.message} for f in self.findings]
        for finding in findings:
            del finding["hint"]  # a part of the message
        head = {"data": self.data, "format": self.format, "imgsz": self.imgsz, "exit_code": self.exit_code}
        points = None if self.keypoints is None else self.keypoints.to_dict()
        return {**head, "splits": splits, "classes": self._classes(), "keypoints": points, "findings": findings}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    def lines(self) -> list[str]:
        """Text for people: splits, classes, findings."""
        if not self.splits:
            return [finding.sentence for finding in self.findings]
        lines = [f"{self.data} ({self.format}, {len(self.names)} classes)", ""]
        lines += table(["split", "images", "empty", "objects", "ignored", f"median side at {self.imgsz}"], self._split_rows())
        lines += ["", *table(["id", "class", *self.splits], self._class_rows()), ""]
        lines += [] if self.keypoints is None else [self._keypoint_line(self.keypoints), ""]
        base = self.data if os.path.isdir(self.data) else os.path.dirname(self.data)
        lines += [f"{finding.level:8}{finding.sentence.replace(base + os.sep, '')}" for finding in self.findings]
        verdict = {0: "clean", 1: "usable, with findings", 3: "cannot be used as it is"}[self.exit_code]
        return [*lines, f"{'result':8}{verdict}"]

    def _keypoint_line(self, spec: KeypointSpec) -> str:
        pairs = "none is known to change places in a mirror"
        if spec.flip is not None:
            pairs = f"{sum(i < other for i, other in enumerate(spec.flip))} pairs change places in a mirror"
        shares = (f"{name} {part.labelled:.0%}" for name, part in self.splits.items() if not np.isnan(part.labelled))
        return f"{spec.points} keypoints of {spec.dims} numbers, {pairs}; labelled: {', '.join(shares) or 'none'}"

    def _classes(self) -> list[dict]:
        pairs = enumerate(zip(self.category_ids, self.names, strict=True))
        return [{"id": i, "name": name, **{s: part.classes[k] for s, part in self.splits.items()}} for k, (i, name) in pairs]

    def _class_rows(self) -> Iterator[list[str]]:
        for row in self._classes():
            yield [str(value) for value in row.values()]

    def _split_rows(self) -> Iterator[list[str]]:
        for name, part in self.splits.items():
            side = "-" if np.isnan(part.median_side) else f"{part.median_side:.0f} px"
            yield [name, str(part.images), str(part.empty), str(part.objects), str(part.ignored), side]


def check(
    data: str | Path | DataSet, needs: tuple[str, ...] = ("boxes",), imgsz: int = 640, splits: tuple[str, ...] | None = None
) -> Report:
    """Reads every label and every picture's header, and reports; data that cannot be read at all are one fatal finding."""
    try:
        dataset = data if isinstance(data, DataSet) else read_dataset(data, needs, splits)
    except DataError as error:
        return Report(str(data), "", imgsz, (), (), {}, (Finding("unreadable", 1, (str(error),)),))
    findings = list(dataset.all_findings())
    for split, index in dataset.splits.items():
        findings += _look(split, index, imgsz)
    findings += _shared(dataset.splits)
    findings += _missing(dataset) if splits is None and not isinstance(data, DataSet) else ()
    order = ("fatal", "error", "warning", "note")
    findings.sort(key=lambda finding: order.index(finding.level))
    spec = next((index.keypoints for index in dataset.splits.values() if index.keypoints is not None), None)
    summaries = {split: _summary(index, imgsz) for split, index in dataset.splits.items()}
    return Report(str(dataset.source), dataset.format, imgsz, dataset.names, dataset.category_ids, summaries, tuple(findings), spec)


def table(head: Sequence[str], rows: Iterator[list[str]]) -> list[str]:
    """Columns as wide as their widest cell; words to the left, numbers to the right."""
    cells = [list(head), *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    words = [not any(row[i][:1].isdigit() for row in cells[1:]) for i in range(len(head))]
    aligned = ((cell.ljust if word else cell.rjust)(width) for row in cells for cell, width, word in zip(row, widths, words, strict=True))
    return ["  ".join(next(aligned) for _ in head).rstrip() for _ in cells]


def sides(index: Index, imgsz: int) -> np.ndarray:
    """Width and height (M, 2) of the objects in pixels at the training size."""
    gain = imgsz / index.sizes.max(1)
    turned = index.columns.get("rboxes")
    pixels = index.boxes[:, 2:] - index.boxes[:, :2] if turned is None else turned.values.reshape(-1, 5)[:, 2:4]
    return pixels * gain[index.image_rows()][:, None]


def _labelled(index: Index) -> float:
    """Share of the keypoints that are labelled, of objects that count."""
    if "keypoints" not in index.columns or index.keypoints is None:
        return float("nan")
    seen = index.columns["keypoints"].values.reshape(-1, index.keypoints.points, 3)[~index.ignore, :, 2] > 0
    return float(seen.mean()) if seen.size else float("nan")


def _summary(index: Index, imgsz: int) -> SplitSummary:
    counted = ~index.ignore
    lengths = np.sqrt(sides(index, imgsz)[counted].prod(1))
    return SplitSummary(
        images=len(index),
        empty=index.empty(),
        objects=int(counted.sum()),
        ignored=int(index.ignore.sum()),
        classes=tuple(int(count) for count in index.class_counts()),
        median_side=float(np.median(lengths)) if len(lengths) else float("nan"),
        labelled=_labelled(index),
    )


def _look(split: str, index: Index, imgsz: int) -> tuple[Finding, ...]:
    """Findings that only the finished arrays show."""
    log = Log(split)
    rows = index.image_rows()
    for position in np.flatnonzero((sides(index, imgsz).min(1, initial=np.inf) < TINY) & ~index.ignore):
        log.add("tiny", index.path(rows[position]))
    tiles = f"or look at tiles (tile={imgsz} of predict and val; of oriented boxes by `pellucid data tiles`)"
    larger = index.sizes.max(initial=0) > imgsz  # a tile shows more of such a picture
    log.about("tiny", int((~index.ignore).sum()), tiles if larger else "")
    for position in repeats(rows, index):
        log.add("duplicate", index.path(rows[position]))
    for position in np.flatnonzero(index.class_counts() == 0):
        log.add("class-absent", index.names[position], _misspelt(index.names[position], index.names))
    return log.findings()


def _misspelt(name: str, names: Sequence[str]) -> str:
    """A reason to doubt that a class is one of its own: another is spelled nearly the same, but for its digits."""
    letters = {other: re.sub(r"\d+", "", other).lower() for other in names if other != name}
    own = re.sub(r"\d+", "", name).lower()
    near = get_close_matches(own, [other for other in letters.values() if other != own], 1, 0.8)
    return f"is it the class {next(other for other in letters if letters[other] == near[0])!r} misspelt?" if near else ""


def repeats(rows: np.ndarray, index: Index) -> np.ndarray:
    """Positions of objects that equal an earlier one of their image in class and box."""
    keys = np.column_stack((rows, index.labels, index.boxes)).astype(np.float64)
    order = np.lexsort(keys.T[::-1])
    same = (keys[order][1:] == keys[order][:-1]).all(1)
    return np.sort(order[1:][same])


def _missing(dataset: DataSet) -> tuple[Finding, ...]:
    """Splits without which nothing can be trained."""
    log = Log()
    for split in NEEDED:
        if split not in dataset.splits:
            log.add("split-missing", dataset.source, f"no {split}")
    return log.findings()


def _shared(splits: Mapping[str, Index]) -> tuple[Finding, ...]:
    """Pictures that occur in a split and in an earlier one."""
    log = Log()
    owner: dict[str, str] = {}
    for split, index in splits.items():
        for row in range(len(index)):
            path = os.fspath(index.path(row))
            if owner.setdefault(path, split) != split:
                log.add("split-overlap", path, f"{owner[path]} and {split}")
    return log.findings()

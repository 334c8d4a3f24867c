"""COCO records of one picture as objects again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..errors import DataError
from ..geometry import Boxes, Shape
from ..geometry.keypoints import Keypoints
from ..geometry.rboxes import RBoxes
from ..geometry.rle import Rle
from ..types import Instances

Records = Sequence[Mapping[str, Any]]


def objects_of(records: Records, ids: Sequence[int]) -> Instances:
    """The objects that `records` hold, in their order; `ids` are the class ids by position. DataError names a record that does not fit."""
    places = {number: place for place, number in enumerate(ids)}
    labels, boxes, scores = [], [], []
    for number, record in enumerate(records):
        try:
            x, y, width, height = (float(value) for value in record["bbox"])
            labels.append(places[record["category_id"]])
            if not all(map(math.isfinite, (x, y, width, height))):
                raise ValueError("a bbox that is not finite")
            boxes.append((x, y, x + width, y + height))
            scores.append(float(record["score"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"record {number}: expected category_id among {list(ids)}, bbox and score, got {error}; mend it") from None
    found = Boxes(torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4).float())
    return Instances(
        torch.tensor(labels, dtype=torch.int64), {"boxes": found, **_others(records)}, torch.tensor(scores, dtype=torch.float32)
    )


def image_of(records: Records) -> int:
    """The picture that all records name, 0 where there are none; DataError for no list, no whole number, or records of several pictures."""
    if isinstance(records, Mapping) or any(not isinstance(record, Mapping) for record in records):
        raise DataError(f"records: expected a list of COCO results, each a dict, got {_kind(records)}; give what to_coco gave")
    first = 0
    for number, record in enumerate(records):
        given = record.get("image_id", 0)
        try:
            image = int(given)
        except (TypeError, ValueError):
            raise DataError(f"record {number}: expected a whole number as image_id, got {given!r}; mend it") from None
        first = first if number else image
        if image != first:
            raise DataError(
                f"record {number}: expected image_id {first} as in record 0, since a Result is one picture, got {image}; "
                "call from_coco once for each image_id"
            )
    return first


def _kind(records: Any) -> str:
    if isinstance(records, Mapping):
        return "a dict"
    return f"an item of the kind {next(type(record).__name__ for record in records if not isinstance(record, Mapping))}"


def _others(records: Records) -> dict[str, Shape]:
    """The shapes beside boxes that every record holds."""
    readers = {"segmentation": ("masks", _masks), "keypoints": ("keypoints", _keypoints), "rbox": ("rboxes", _rboxes)}
    shapes = {}
    for field, (name, read) in readers.items():
        held = sum(field in record for record in records)
        if held not in (0, len(records)):
            raise DataError(f"records: expected {field} in all {len(records)} of them, got it in {held}; give them from one task")
        if held:
            shapes[name] = _read(field, read, records)
    return shapes


def _read(field: str, read: Any, records: Records) -> Shape:
    try:
        return read([record[field] for record in records])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"records: expected {field} as to_coco writes it, got another form ({error}); mend it") from None


def _masks(codes: Sequence[Any]) -> Rle:
    return Rle.cat([Rle.from_coco(code) for code in codes])


def _keypoints(rows: Sequence[Any]) -> Keypoints:
    return Keypoints(torch.tensor(rows, dtype=torch.float32).reshape(len(rows), -1, 3), predicted=True)


def _rboxes(rows: Sequence[Any]) -> RBoxes:
    return RBoxes(torch.tensor(rows, dtype=torch.float32).reshape(-1, 5))

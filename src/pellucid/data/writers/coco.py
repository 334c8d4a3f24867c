"""COCO: annotations/instances_{split}.json and images/{split}; holes as run lengths, all ids those of the user."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...geometry.keypoints import default_sigmas
from ...geometry.polygons import Polygons
from ..readers.base import KEYS, read_yaml
from .base import Item, Plan, Thing, Writer
from .originals import CocoFiles

# what is written anew; whatever else the file of a copy says is kept
LISTS = ("images", "annotations", "categories")
IMAGE = ("id", "file_name", "width", "height")
ANNOTATION = ("id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints", "num_keypoints")
_SAME = 1e-6  # of an area, what its way through single precision may change
CATEGORY = ("id", "name", "keypoints", "skeleton", "flip_idx")


@dataclass
class Coco(Writer):
    """One JSON file a split."""

    HOLDS = frozenset({"polygons", "keypoints", "ignored", "areas", "ids", "images"})

    def __post_init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.ids: dict[str, set[object]] = {}  # of annotations, by split
        self.files = CocoFiles() if self.dataset.format == "coco" else None
        self.indexes = list({index.file: index for index in self.dataset.splits.values()}.values()) if self.files else []

    def picture(self, split: str, name: str) -> str:
        return f"images/{split}/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        document = self.documents.setdefault(split, {"images": [], "annotations": [], "categories": self.categories()})
        height, width = item.size
        own = {"id": item.image_id, "file_name": item.name, "width": width, "height": height}
        known = self.files.image(item.index, item.row) if self.files else {}
        self.lost.add("dropped", f"{item.name}: image id {known.get('id')!r}", int(isinstance(known.get("id"), str)))
        document["images"].append({**known, **own})
        outlines = Polygons.from_rings([_outer(thing) for thing in things]).coco(height, width)
        for thing, outline in zip(things, outlines, strict=True):
            if thing.wound and isinstance(outline, list):
                outline = [np.reshape(ring, (-1, 2))[::-1].reshape(-1).tolist() for ring in outline]
            old = self.files.annotation(item.index, thing.origin) if self.files else {}
            entry = {"id": self.number(split, item.name, old.get("id")), **self.annotation(item.image_id, thing, outline)}
            area = old.get("area")
            if isinstance(area, int | float) and abs(area - entry["area"]) <= _SAME * area:
                entry["area"] = area
            document["annotations"].append({**{key: value for key, value in old.items() if key not in ANNOTATION}, **entry})

    def number(self, split: str, name: str, old: object) -> object:
        """The id of an annotation where no other of its split has it, else None: numbered in the end."""
        taken = self.ids.setdefault(split, set())
        if type(old) not in (int, str):
            return None
        self.lost.add("annotation-ids", name, int(old in taken))
        if old in taken:
            return None
        taken.add(old)
        return old

    def annotation(self, image_id: int, thing: Thing, outline: Any) -> dict[str, Any]:
        x1, y1, x2, y2 = thing.box
        area = thing.area or (Polygons.from_rings([_outer(thing)]).area().item() if thing.outlines else (x2 - x1) * (y2 - y1))
        entry: dict[str, Any] = {
            "image_id": image_id,
            "category_id": self.dataset.category_ids[thing.label],
            "bbox": [round(value, 4) for value in (x1, y1, x2 - x1, y2 - y1)],
            "area": round(area, 4),
            "iscrowd": int(thing.ignore),
        }
        if thing.outlines:
            entry["segmentation"] = outline
        if thing.points is not None and thing.points[:, 2].any():
            entry["keypoints"] = [round(value, 4) for value in thing.points.reshape(-1).tolist()]
            entry["keypoints"][2::3] = [int(value) for value in entry["keypoints"][2::3]]
            entry["num_keypoints"] = int((thing.points[:, 2] > 0).sum())
        return entry

    def categories(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = [
            {"id": i, "name": name} for i, name in zip(self.dataset.category_ids, self.dataset.names, strict=True)
        ]
        if self.points is not None:
            bones = [[a + 1, b + 1] for a, b in self.points.skeleton]
            own = {"keypoints": list(self.points.names), "skeleton": bones}
            flip = {} if self.points.flip is None else {"flip_idx": list(self.points.flip)}
            entries = [{**entry, **own, **flip} for entry in entries]
        olds = [self.files.category(self.indexes, entry["id"]) if self.files else {} for entry in entries]
        silent = self.points is None and any(index.keypoints for index in self.indexes)  # points that no object has
        anew = CATEGORY[:2] if silent else CATEGORY
        pairs = zip(olds, entries, strict=True)
        return [{**{key: value for key, value in old.items() if key not in anew}, **entry} for old, entry in pairs]

    def head(self, items: Sequence[Item]) -> dict[str, Any]:
        """What the files of these pictures say beside their lists: lists joined, of what differs otherwise the first is taken."""
        head: dict[str, Any] = {}
        indexes = {item.index.file: item.index for item in items} if self.files else {}
        for file, index in indexes.items():
            assert self.files is not None
            for key, value in self.files.document(index).items():
                if key in LISTS or head.setdefault(key, value) == value:
                    continue
                if isinstance(value, list) and isinstance(head[key], list):
                    head[key] = head[key] + [entry for entry in value if entry not in head[key]]
                else:
                    self.lost.add("dropped", f"{file}: {key}")
        return head

    def finish(self, plan: Plan) -> None:
        for split, document in self.documents.items():
            last = max((number for number in self.ids.get(split, ()) if isinstance(number, int)), default=0)
            rest = [entry for entry in document["annotations"] if entry["id"] is None]
            for number, entry in enumerate(rest, max(last, 0) + 1):
                entry["id"] = number
            document = {**self.head(plan[split]), **document}
            self.text(f"annotations/instances_{split}.json", json.dumps(document, ensure_ascii=False))
        if self.files and self.dataset.source.is_file():
            for key in read_yaml(self.dataset.source).keys() - set(KEYS):
                self.lost.add("dropped", f"{self.dataset.source}: {key}")
        if self.points is not None:
            spec = self.points
            usual = default_sigmas(spec.points, 3, spec.names)
            self.lost.add("sigmas", "annotations", spec.points * (tuple(spec.sigmas) != tuple(usual)))


def _outer(thing: Thing) -> list[np.ndarray]:
    """The rings of an object, outer ones run from +x to +y."""
    return [ring[::-1] for ring in thing.outlines] if thing.wound else thing.outlines

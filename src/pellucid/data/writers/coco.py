"""COCO: annotations/instances_{split}.json and images/{split}; holes as run lengths, all ids those of the user."""

from __future__ import annotations

import json
from typing import Any

from ...geometry.keypoints import default_sigmas
from ...geometry.polygons import Polygons
from .base import Item, Plan, Thing, Writer


class Coco(Writer):
    """One JSON file a split."""

    HOLDS = frozenset({"polygons", "keypoints", "ignored", "areas", "ids", "images"})

    def __post_init__(self) -> None:
        self.documents: dict[str, dict[str, list[Any]]] = {}

    def picture(self, split: str, name: str) -> str:
        return f"images/{split}/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        document = self.documents.setdefault(split, {"images": [], "annotations": [], "categories": self.categories()})
        height, width = item.size
        document["images"].append({"id": item.image_id, "file_name": item.name, "width": width, "height": height})
        outlines = Polygons.from_rings([thing.outlines for thing in things]).coco(height, width)
        for thing, outline in zip(things, outlines, strict=True):
            document["annotations"].append(self.annotation(len(document["annotations"]) + 1, item.image_id, thing, outline))

    def annotation(self, number: int, image_id: int, thing: Thing, outline: Any) -> dict[str, Any]:
        x1, y1, x2, y2 = thing.box
        area = thing.area or (Polygons.from_rings([thing.outlines]).area().item() if thing.outlines else (x2 - x1) * (y2 - y1))
        entry: dict[str, Any] = {
            "id": number,
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
        return entries

    def finish(self, plan: Plan) -> None:
        for split, document in self.documents.items():
            self.text(f"annotations/instances_{split}.json", json.dumps(document, ensure_ascii=False))
        if self.points is not None:
            spec = self.points
            usual = default_sigmas(spec.points, 3, spec.names)
            self.lost.add("sigmas", "annotations", spec.points * (tuple(spec.sigmas) != tuple(usual)))

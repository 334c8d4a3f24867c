"""LabelMe: {split}/*.json beside the pictures, labels.txt and keypoints.txt; parts and points of an object share a group id."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from ...geometry.keypoints import default_sigmas
from .base import LARGE, Item, Plan, Thing, Writer, joined, stem_of


class LabelMe(Writer):
    """Crowd and difficult objects carry the flag `difficult`, hidden points the flag `hidden`."""

    HOLDS = frozenset({"polygons", "keypoints", "ignored"})

    def picture(self, split: str, name: str) -> str:
        return f"{split}/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        height, width = item.size
        shapes = [shape for number, thing in enumerate(things) for shape in self.shapes(item.name, number, thing)]
        document: dict[str, Any] = {
            "version": "5.5.0",
            "flags": {},
            "shapes": shapes,
            "imagePath": os.path.basename(item.name),
            "imageData": None,
            "imageHeight": height,
            "imageWidth": width,
        }
        self.text(f"{split}/{stem_of(item.name)}.json", json.dumps(document, ensure_ascii=False, indent=1))

    def shapes(self, name: str, number: int, thing: Thing) -> list[dict[str, Any]]:
        x1, y1, x2, y2 = thing.box
        label, flags = self.dataset.names[thing.label], {"difficult": True} if thing.ignore else {}
        rings = thing.outlines
        if any(_runs_back(ring) for ring in rings):
            self.lost.add("joined", name)
            rings = [joined(rings)]
        found = [_shape(label, "polygon", ring, number, flags) for ring in rings]
        if rings:
            points = np.concatenate(rings)
            around = np.concatenate((points.min(0), points.max(0)))
            self.lost.add("box-of-outline", name, int(np.abs(around - thing.box).max() > LARGE and thing.corners is None))
        else:
            found = [_shape(label, "rectangle", np.array(((x1, y1), (x2, y2))), number, flags)]
        if thing.points is not None and self.points is not None:
            for title, (x, y, seen) in zip(self.points.names, thing.points.tolist(), strict=True):
                if seen:
                    found.append(_shape(title, "point", np.array(((x, y),)), number, {"hidden": True} if seen == 1 else {}))
        return found

    def finish(self, plan: Plan) -> None:
        self.text("labels.txt", "".join(name + "\n" for name in self.dataset.names))
        if self.points is None:
            return
        spec = self.points
        self.text("keypoints.txt", "".join(name + "\n" for name in spec.names))
        self.lost.add("skeleton", "keypoints.txt", len(spec.skeleton))
        self.lost.add("sigmas", "keypoints.txt", spec.points * (tuple(spec.sigmas) != tuple(default_sigmas(spec.points, 3, spec.names))))


def _shape(label: str, kind: str, points: np.ndarray, group: int, flags: dict[str, bool]) -> dict[str, Any]:
    places = points.round(4).tolist()
    return {"label": label, "points": places, "group_id": group, "shape_type": kind, "flags": flags}


def _runs_back(ring: np.ndarray) -> bool:
    x, y = (ring - ring[0]).T
    return float(x[:-1] @ y[1:] - x[1:] @ y[:-1]) < 0

"""LabelMe: {split}/*.json beside the pictures, labels.txt and keypoints.txt; parts and points of an object share a group id."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...geometry.keypoints import KeypointSpec, default_sigmas
from ..readers.labelme import NO_CLASS, group_of, key_of, kind_of, label_of, listed_lines, ring_of
from ..readers.place import bounds, rectangle
from .base import LARGE, Item, Plan, Thing, Writer, area_of, joined, stem_of
from .originals import LabelMeFiles

SAME = 0.01  # pixels by which a shape may differ from the one that was read and count as unchanged
_FORM = ("label", "points", "group_id", "shape_type", "flags")  # of a shape, written anew


@dataclass
class LabelMe(Writer):
    """Crowd and difficult objects carry the flag `difficult`, hidden points the flag `hidden`."""

    HOLDS = frozenset({"polygons", "keypoints", "ignored"})

    def __post_init__(self) -> None:
        columns = [index.columns["polygons"] for index in self.dataset.splits.values() if "polygons" in index.columns]
        self.outlined = any(len(column.values) for column in columns)  # a rectangle among outlines is read as one
        self.files = LabelMeFiles() if self.dataset.format == "labelme" else None

    def picture(self, split: str, name: str) -> str:
        return f"{split}/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        height, width = item.size
        old = self.files.page(item.index, item.row) if self.files else {}
        members = [self.shapes(item.name, number, thing) for number, thing in enumerate(things)]
        if old:
            self.refill(item.name, old.get("shapes", []), things, members)
        document: dict[str, Any] = {
            **{"version": "5.5.0", "flags": {}, **old},
            "shapes": [shape for own in members for shape in own],
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
        if len(rings) > 1 and any(area_of(ring) < 0 for ring in rings):
            self.lost.add("joined", name)
            rings = [joined(rings)]
        found = [_shape(label, "polygon", ring, number, flags) for ring in rings]
        if rings:
            points = np.concatenate(rings)
            around = np.concatenate((points.min(0), points.max(0)))
            self.lost.add("box-of-outline", name, int(np.abs(around - thing.box).max() > LARGE and thing.corners is None))
        else:
            self.lost.add("outlined", name, int(self.outlined))
            found = [_shape(label, "rectangle", np.array(((x1, y1), (x2, y2))), number, flags)]
        if thing.points is not None and self.points is not None:
            for title, (x, y, seen) in zip(self.points.names, thing.points.tolist(), strict=True):
                if seen:
                    found.append(_shape(title, "point", np.array(((x, y),)), number, {"hidden": True} if seen == 1 else {}))
        if len(found) == 1:
            found[0]["group_id"] = None
        return found

    def refill(self, name: str, old: list[dict[str, Any]], things: list[Thing], members: list[list[dict[str, Any]]]) -> None:
        """Give the shapes of a copy back what theirs said in the old page: flags, description and the like, unchanged ones their form."""
        keys = [key_of(shape, number) for number, shape in enumerate(old, 1)]
        points: dict[str, list[dict[str, Any]]] = {}  # by label
        parts: dict[tuple[str, Any], list[dict[str, Any]]] = {}
        for shape, key in zip(old, keys, strict=True):
            if kind_of(shape) == "point":
                points.setdefault(label_of(shape), []).append(shape)
            else:
                parts.setdefault(key, []).append(shape)
        free = max((group for group in map(group_of, old) if isinstance(group, int)), default=-1) + 1
        for number, (thing, own) in enumerate(zip(things, members, strict=True)):
            if not thing.origin:
                continue
            key = keys[thing.origin - 1]
            rings = [shape for shape in own if shape["shape_type"] != "point"]
            olds = parts[key]
            alike = len(olds) == len(rings)
            self.lost.add("dropped", f"{name}: a part of {key[0]}", int(not alike and any(_rest(part) != _rest(olds[0]) for part in olds)))
            pairs = list(zip(rings, olds if alike else [olds[0]] * len(rings), strict=True))
            for shape in own:
                alone = shape["shape_type"] == "point"
                same = [point for point in points.get(shape["label"], ()) if group_of(point) in (None, key[1])] if alone else []
                pairs += [(shape, same[0])] if same else []
            for shape, before in pairs:
                shape.update({**_rest(before), "flags": _flags(shape, before), **_form(shape, before)})
                self.lost.add("circles", name, int(kind_of(before) == "circle" and shape["shape_type"] == "polygon"))
            group = group_of(olds[0])
            for shape in own:
                shape["group_id"] = group if group is not None else olds[0].get("group_id") if len(own) == 1 else free + number

    def finish(self, plan: Plan) -> None:
        listed = self.dataset.source / "labels.txt"
        first = [line for line in listed_lines(listed) if line in NO_CLASS] if self.files else []
        self.text("labels.txt", "".join(name + "\n" for name in (*first, *self.dataset.names)))
        if self.points is None:
            names = listed_lines(self.dataset.source / "keypoints.txt") if self.files else []
            if names:  # of points that no object has
                self.text("keypoints.txt", "".join(name + "\n" for name in names))
            return
        spec = self.points
        self.text("keypoints.txt", "".join(name + "\n" for name in spec.names))
        told = KeypointSpec.make(spec.points, 3, spec.names).flip
        self.lost.add("mirrors", "keypoints.txt", 0 if spec.flip == told else spec.points)
        self.lost.add("skeleton", "keypoints.txt", len(spec.skeleton))
        self.lost.add("sigmas", "keypoints.txt", spec.points * (tuple(spec.sigmas) != tuple(default_sigmas(spec.points, 3, spec.names))))


def _form(shape: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """How the shape before was drawn, where it is the same one; of a rectangle that was cut, the rectangle that is left."""
    points = np.array(shape["points"])
    try:
        ring = points if shape["shape_type"] == "point" else ring_of(before)
        given = np.array(before.get("points"), np.float64) if shape["shape_type"] == "point" else ring
    except (TypeError, ValueError, OverflowError):
        return {}
    if shape["shape_type"] == "rectangle":
        points = rectangle(bounds([points]))
    if points.shape == given.shape and min(np.abs(way - given).max() for way in (points, points[::-1])) <= SAME:
        return {"points": before["points"], "shape_type": before.get("shape_type")}
    low, high = points.min(0), points.max(0)
    if kind_of(before) == "rectangle" and len(points) == 4 and ((points == low) | (points == high)).all():
        return {"points": [low.tolist(), high.tolist()], "shape_type": "rectangle"}
    return {}


def _flags(shape: dict[str, Any], before: dict[str, Any]) -> Any:
    """The flags of a shape and those that it had; what was no mapping stays where there is nothing to add."""
    old = before.get("flags")
    kept: dict[str, Any] = {**_rest(before)["flags"], **shape["flags"]}
    return old if old and not isinstance(old, dict) and not kept else kept


def _rest(shape: dict[str, Any]) -> dict[str, Any]:
    """What a shape says beside its label and its form; always flags."""
    flags = shape.get("flags")
    told = "hidden" if kind_of(shape) == "point" else "difficult"
    kept = {key: value for key, value in flags.items() if key != told or value is not True} if isinstance(flags, dict) else {}
    return {**{key: value for key, value in shape.items() if key not in _FORM}, "flags": kept}


def _shape(label: str, kind: str, points: np.ndarray, group: int, flags: dict[str, bool]) -> dict[str, Any]:
    places = points.round(4).tolist()
    return {"label": label, "points": places, "group_id": group, "shape_type": kind, "flags": flags}

"""YOLO: images/{split}, labels/{split} and a data.yaml; rows of one kind, as shares of the picture's width and height."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import yaml

from ...errors import DataError
from ...geometry.keypoints import default_sigmas
from ..readers.base import other_keys
from ..readers.yolo import label_folder
from .base import LARGE, Item, Plan, Thing, Writer, as_drawn, joined, rectangle_around


@dataclass
class Yolo(Writer):
    """Class ids stay those of the user."""

    @property
    def holds(self) -> frozenset[str]:
        return frozenset({"ids", self.kind})

    def picture(self, split: str, name: str) -> str:
        return f"images/{split}/{name}"

    def page(self, split: str, item: Item, things: list[Thing]) -> None:
        folder, name = os.path.split(self.picture(split, item.name))
        labels = label_folder(folder)
        assert labels is not None
        height, width = item.size
        rows = [(thing.label, self.numbers(item.name, thing, np.array((width, height), np.float64))) for thing in things]
        ids = self.dataset.category_ids
        lines = [" ".join((str(ids[label]), *(f"{value:.7f}".rstrip("0").rstrip(".") for value in row))) for label, row in rows]
        self.text(f"{labels}/{os.path.splitext(name)[0]}.txt", "".join(line + "\n" for line in lines))

    def numbers(self, name: str, thing: Thing, size: np.ndarray) -> list[float]:
        """What follows the class id."""
        x1, y1, x2, y2 = thing.box
        if self.kind == "polygons":
            return list((self.outline(name, thing) / size).reshape(-1))
        if self.kind == "rboxes":
            return list((self.corners(name, thing) / size).reshape(-1))
        box = (np.array(((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)) / np.tile(size, 2)).tolist()
        if self.kind == "keypoints" and self.points is not None:
            dims = self.points.dims
            points = np.zeros((self.points.points, 3)) if thing.points is None else thing.points / (*size, 1)
            return [*box, *points[:, :dims].reshape(-1).tolist()]
        return box

    def outline(self, name: str, thing: Thing) -> np.ndarray:
        """One ring for all of the object."""
        rings = thing.outlines
        if not rings:
            self.lost.add("outlined", name)
            x1, y1, x2, y2 = thing.box
            return np.array(((x1, y1), (x2, y1), (x2, y2), (x1, y2)))
        points = np.concatenate(rings)
        around = np.concatenate((points.min(0), points.max(0)))
        self.lost.add("box-of-outline", name, int(np.abs(around - thing.box).max() > LARGE and thing.corners is None))
        self.lost.add("joined", name, int(len(rings) > 1))
        return joined(rings)

    def corners(self, name: str, thing: Thing) -> np.ndarray:
        return corners_of(self, name, thing)

    def finish(self, plan: Plan) -> None:
        names = zip(self.dataset.category_ids, self.dataset.names, strict=True)
        lines = [f"{split}: images/{split}" for split in plan]
        lines += ["names:", *(f"  {i}: {_quoted(name)}" for i, name in names)]
        if self.kind == "keypoints" and (spec := self.points) is not None:
            lines += [f"kpt_shape: [{spec.points}, {spec.dims}]", f"kpt_names: [{', '.join(map(_quoted, spec.names))}]"]
            if spec.flip is not None:
                lines.append(f"flip_idx: {list(spec.flip)}")
            if tuple(spec.sigmas) != tuple(default_sigmas(spec.points, spec.dims, spec.names)):
                lines.append(f"kpt_sigmas: {list(spec.sigmas)}")
            self.lost.add("skeleton", "data.yaml", len(spec.skeleton))
        others: dict[object, object] = {}
        try:
            others = other_keys(self.dataset.source) if self.dataset.format == "yolo" else {}
        except DataError as error:
            self.lost.add("dropped", str(error))
        self.text("data.yaml", "\n".join(lines) + "\n" + as_yaml(others))


def as_yaml(others: Mapping[object, object]) -> str:
    """The lines of what a YAML says that nothing here reads."""
    return yaml.safe_dump(dict(others), allow_unicode=True, sort_keys=False) if others else ""


def corners_of(writer: Writer, name: str, thing: Thing) -> np.ndarray:
    """The corners (4, 2) of an oriented box, of the smallest rectangle around an outline, or of the box."""
    if thing.corners is not None:
        return thing.corners
    if thing.rings:
        corners, same = rectangle_around(thing.rings)
        writer.lost.add("enclosed", name, int(not same))
        four = thing.rings[0] if same and [len(ring) for ring in thing.rings] == [4] else None
        return corners if four is None else as_drawn(corners, four)
    x1, y1, x2, y2 = thing.box
    return np.array(((x1, y1), (x2, y1), (x2, y2), (x1, y2)))


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)

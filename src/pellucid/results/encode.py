"""Shapes as files hold them, by their type: fields of JSON, fields of COCO results, values of YOLO rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..geometry import Boxes, Shape
from ..geometry.keypoints import SHOWN, Keypoints
from ..geometry.masks import Masks
from ..geometry.polygons import Polygons
from ..geometry.rboxes import RBoxes
from ..geometry.rle import Rle
from ..types import Instances
from .views import outlines, run_lengths, sides

Size = tuple[int, int]  # height, width
Fields = dict[str, Any]
_PLACES = 3  # decimals of a pixel


@dataclass(frozen=True)
class Encoding:
    """One list entry an object: `json(shape, size)`, `coco(shape, size)`, and `row(shape, boxes, size)`, the values after the class id."""

    json: Callable[[Any, Size], list[Fields]]
    coco: Callable[[Any, Size], list[Fields]]
    row: Callable[[Any, Boxes, Size], list[list[float]]]


def encoding(shape: Shape) -> Encoding:
    return ENCODINGS[type(shape)]


def telling(instances: Instances) -> Shape:
    """The shape that says most of the objects: the one beside the boxes, if there is one."""
    shapes = list(instances.shapes.values())
    return next((shape for shape in shapes if not isinstance(shape, Boxes)), shapes[0])


def boxes_of(instances: Instances) -> Boxes:
    """The boxes, or those around the other shape."""
    return Boxes((instances.shapes.get("boxes") or telling(instances)).bounds())


def box_json(boxes: Boxes, size: Size) -> list[Fields]:
    """`box`: x1, y1, x2, y2."""
    return [{"box": row} for row in _rounded(boxes.data)]


def box_coco(boxes: Boxes, size: Size) -> list[Fields]:
    """`bbox`: x, y, width, height; x + width and y + height are the other corner."""
    corners = exact(boxes.data)
    return [{"bbox": [x1, y1, _length(x1, x2), _length(y1, y2)]} for x1, y1, x2, y2 in corners]


def box_row(shape: Boxes, boxes: Boxes, size: Size) -> list[list[float]]:
    """Centre x and y, width, height."""
    low, high = boxes.data.double().chunk(2, -1)
    return (torch.cat(((low + high) / 2, high - low), -1) / sides(size).double().repeat(2)).tolist()


def mask_json(shape: Masks | Polygons | Rle, size: Size) -> list[Fields]:
    """`polygons`: the rings x, y, x, y, ...; outer ones run clockwise on screen, holes the other way."""
    polygons = outlines(shape, size)
    return [{"polygons": [_rounded(ring.reshape(-1)) for ring in polygons.parts(i)]} for i in range(len(polygons))]


def mask_coco(shape: Masks | Polygons | Rle, size: Size) -> list[Fields]:
    """`segmentation`: the run-length code."""
    return [{"segmentation": code} for code in run_lengths(shape, size).coco()]


def mask_row(shape: Masks | Polygons | Rle, boxes: Boxes, size: Size) -> list[list[float]]:
    """One ring x, y, x, y, ...: parts and holes are joined by bridges that are walked there and back, and so enclose nothing."""
    polygons = outlines(shape, size)
    rings = [bridged(polygons.parts(i)) for i in range(len(polygons))]
    return [(ring / sides(size).double().numpy()).reshape(-1).tolist() for ring in rings]


def bridged(rings: Sequence[np.ndarray]) -> np.ndarray:
    """The rings of one object, (p, 2) each, as one closed walk (p, 2) with the same winding numbers."""
    if not len(rings):
        return np.zeros((0, 2))
    walk, *left = (np.asarray(ring, np.float64) for ring in rings)
    for ring in left:
        here = np.square(walk - ring[0]).sum(1).argmin()
        walk = np.concatenate((walk[: here + 1], ring, ring[:1], walk[here:]))
    return walk


def points_json(shape: Keypoints, size: Size) -> list[Fields]:
    """`keypoints`: x, y, confidence of each point."""
    return [{"keypoints": [_rounded(point) for point in points]} for points in shape.data]


def points_coco(shape: Keypoints, size: Size) -> list[Fields]:
    """`keypoints`: x, y, confidence, x, y, ..."""
    return [{"keypoints": exact(points.reshape(-1))} for points in shape.data]


def points_row(shape: Keypoints, boxes: Boxes, size: Size) -> list[list[float]]:
    """The box, then x, y and visibility (2 for a predicted point that is shown, else 0) of each point; x and y where there is none."""
    places = shape.data[..., :2].double() / sides(size).double()
    seen = 2.0 * (shape.data[..., 2:] > SHOWN) if shape.predicted else shape.data[..., 2:]
    points = torch.cat((places, seen.double()), -1)[..., : shape.dims].flatten(1).tolist()
    return [box + values for box, values in zip(box_row(boxes, boxes, size), points, strict=True)]


def rbox_json(shape: RBoxes, size: Size) -> list[Fields]:
    """`rbox`: centre x, centre y, width, height, radians from +x to +y; `corners`: four pairs x, y."""
    corners = shape.corners()
    return [{"rbox": row, "corners": _rounded(four)} for row, four in zip(_turned(shape), corners, strict=True)]


def rbox_coco(shape: RBoxes, size: Size) -> list[Fields]:
    """`rbox` as in JSON, and `poly`: the corners x, y, x, y, ..."""
    return [{"rbox": exact(row), "poly": _rounded(four.reshape(-1))} for row, four in zip(shape.data, shape.corners(), strict=True)]


def rbox_row(shape: RBoxes, boxes: Boxes, size: Size) -> list[list[float]]:
    """Four corners x, y."""
    return (RBoxes(shape.data.double()).corners() / sides(size).double()).flatten(1).tolist()


def _turned(shape: RBoxes) -> list[list[float]]:
    return [[*row[:4], round(theta, 6)] for row, theta in zip(_rounded(shape.data), shape.data[:, 4].tolist(), strict=True)]


def _rounded(values: Any) -> Any:
    """Nested lists of numbers to a thousandth."""
    return np.asarray(values, np.float64).round(_PLACES).tolist()


def _length(low: float, high: float) -> float:
    """A short decimal that leads from `low` to the float32 number `high`."""
    short = round(high - low, 9)
    return short if np.float32(low + short) == np.float32(high) else high - low


def exact(values: torch.Tensor) -> Any:
    """Nested lists of the shortest decimals that give the same float32 numbers again."""
    data = values.float().numpy()
    return np.array([float(str(value)) for value in data.reshape(-1)], np.float64).reshape(data.shape).tolist()


ENCODINGS: Mapping[type, Encoding] = {
    Boxes: Encoding(box_json, box_coco, box_row),
    Masks: Encoding(mask_json, mask_coco, mask_row),
    Polygons: Encoding(mask_json, mask_coco, mask_row),
    Rle: Encoding(mask_json, mask_coco, mask_row),
    Keypoints: Encoding(points_json, points_coco, points_row),
    RBoxes: Encoding(rbox_json, rbox_coco, rbox_row),
}

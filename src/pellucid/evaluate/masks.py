"""Masks as COCO records: predictions as run-length codes, ground truth as the outlines or codes that a COCO file holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from faster_coco_eval.core import mask as codes

from ..geometry import Masks, Polygons, Rle
from ..types import Instances

Size = tuple[int, int]  # height, width of the original image


def hold_masks(instances: Instances, size: Size) -> Instances:
    """Predictions with their masks as run-length codes, so that those of a whole data set fit into memory."""
    masks = instances.shapes["masks"]
    return replace(instances, shapes={**instances.shapes, "masks": masks.rle(*size)}) if isinstance(masks, Masks) else instances


def encode_masks(instances: Instances, size: Size) -> list[dict[str, Any]]:
    """`segmentation` of predictions (`masks`) or of ground truth (`polygons`)."""
    if "masks" in instances.shapes:
        held = hold_masks(instances, size).shapes["masks"]
        assert isinstance(held, Rle)
        return [{"segmentation": code} for code in held.coco()]
    polygons = instances.shapes["polygons"]
    assert isinstance(polygons, Polygons)
    return [{"segmentation": outline} for outline in polygons.coco(*size)]


def mask_areas(records: list[dict[str, Any]]) -> list[float]:
    """Filled pixels of the mask of each record of a prediction, as COCO counts them for results without boxes."""
    areas: list[float] = codes.area([record["segmentation"] for record in records]).tolist() if records else []
    return areas


def own_areas(instances: Instances, size: Size) -> list[float]:
    """Square pixels of each object of the ground truth: of its mask where it has one, else of its box."""
    polygons = instances.shapes.get("polygons")
    if isinstance(polygons, Polygons):
        return Rle.of_runs(polygons.columns(*size), len(polygons), *size).areas().tolist()
    bounds = instances.shapes["boxes"].bounds().double()
    sides: torch.Tensor = (bounds[:, 2:] - bounds[:, :2]).round(decimals=3)
    return (sides[:, 0] * sides[:, 1]).tolist()

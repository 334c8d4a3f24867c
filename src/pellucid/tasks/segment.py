"""Instance segmentation: masks as sums of prototypes, by coefficients beside the box (arXiv 2606.03748, 3.4.1; arXiv 1904.02689)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from ..errors import UsageError
from ..geometry import Boxes, Masks, Polygons, Shape
from ..geometry.masks import pack_bits
from ..losses.boxes import ciou_loss
from ..losses.masks import CELL, OFFSETS, mask_bce, mask_iou, semantic_loss
from ..models.head import Stem
from ..models.proto import PROTOTYPES, Prototypes
from ..types import Instances, Targets
from .base import Overlap, SharedTerm, Task, Term, by_pair, by_quality
from .detect import BOX_STEM, L1_LOSSES, SMALLEST_WINDOW, box_shapes, box_similarity, box_window

COEFFICIENT_STEM = Stem({"coefficients": PROTOTYPES}, floor=32)
WEIGHTS = {"pair": by_pair, "quality": by_quality}


@dataclass(frozen=True)
class SegmentSettings:
    """Gains and named options of the segmentation task."""

    box: float = 7.5
    l1: float = 1.5
    l1_units: str = "image"
    mask: float = 7.5
    semantic: float = 7.5  # 0: no semantic map is learned beside the masks
    mask_weight: str = "pair"  # "quality": pairs of the mask term count by q, not alike
    mask_cells: str = "index"  # "centre": a box holds the cells whose centre, not whose index, lies in it
    assign_masks: bool = True  # masks are compared too when anchors are assigned
    proto_detach: bool = True  # the one-to-one branch does not teach the prototypes
    teach_far: bool = False  # objects so far from every prediction that t is 0 still teach their masks

    def __post_init__(self) -> None:
        allowed = {"l1_units": tuple(L1_LOSSES), "mask_weight": tuple(WEIGHTS), "mask_cells": tuple(OFFSETS)}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise UsageError(f"{name}: expected {' or '.join(values)}, got {getattr(self, name)!r}; choose one of them")


def segment(**told: Any) -> Task:
    """The segmentation task; the arguments are the fields of `SegmentSettings`."""
    settings = SegmentSettings(**told)
    look = partial(mask_similarity, cells=settings.mask_cells) if settings.assign_masks else None
    return Task(
        name="segment",
        needs=("boxes", "polygons"),
        stems=(BOX_STEM, COEFFICIENT_STEM),
        shared={"prototypes": partial(Prototypes, semantic=settings.semantic > 0)},
        kinds={"boxes": Boxes, "masks": Masks},
        targets=mask_targets,
        shapes=box_shapes,
        overlap=Overlap(box_similarity, box_window, look, far=settings.teach_far, form="boxes", numbers=(SMALLEST_WINDOW,)),
        terms=(
            Term("box", settings.box, ciou_loss),
            Term("l1", settings.l1, L1_LOSSES[settings.l1_units]),
            Term("mask", settings.mask, partial(mask_bce, cells=settings.mask_cells), WEIGHTS[settings.mask_weight]),
        ),
        finish=finish_masks,
        metrics=("mask", "box"),
        shared_terms=(SharedTerm("semantic", settings.semantic, semantic_term),) if settings.semantic > 0 else (),
        training_only=("semantic",),
        row=("boxes", "coefficients"),
        facts={"mask_stride": int(CELL)},
        detached=("proto", "semantic") if settings.proto_detach else (),
    )


segment.__signature__ = inspect.signature(SegmentSettings)  # type: ignore[attr-defined]


def mask_targets(instances: Instances, size: int) -> Mapping[str, Tensor]:
    """{"masks": (n, S/4, S/32) uint8}: each object on the prototype grid, at cell centres, one bit a cell."""
    polygons = instances.shapes["polygons"]
    assert isinstance(polygons, Polygons)
    side = size // int(CELL)
    return {"masks": pack_bits(polygons.rasterise(side, side, CELL))}


def mask_similarity(rows: Mapping[str, Tensor], shared: Mapping[str, Tensor], truth: Mapping[str, Tensor], cells: str) -> Tensor:
    """IoU of the masks of some candidates of each object with its own, (B, n, r)."""
    return mask_iou(rows["coefficients"], shared["proto"], rows["boxes"], truth["masks"], cells)


def semantic_term(shared: Mapping[str, Tensor], targets: Targets, size: tuple[int, int]) -> Tensor:
    """The loss of the semantic map against the map of the objects' classes, (B,)."""
    return semantic_loss(shared["semantic"], targets.extras["masks"], targets.labels, targets.valid, targets.ignored)


def finish_masks(rows: Mapping[str, Tensor], shared: Mapping[str, Tensor]) -> Mapping[str, Shape]:
    """Boxes and masks of the chosen rows; the masks stay on the prototype grid."""
    return {"boxes": Boxes(rows["boxes"]), "masks": Masks.of_prototypes(rows["coefficients"], shared["proto"], rows["boxes"], CELL)}

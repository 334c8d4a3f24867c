"""Detection: axis-aligned boxes from four distances, compared by CIoU (arXiv 2606.03748, 3.2; arXiv 2108.07755; arXiv 1911.08287)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..geometry import Boxes, Shape
from ..geometry.boxes import box_ciou
from ..losses.boxes import ciou_loss, distance_l1, stride_l1
from ..models.head import Stem
from ..numerics.islands import full
from ..types import Instances
from .base import Overlap, Task, Term

BOX_STEM = Stem({"box": 4}, floor=16, bias={"box": 2.0})
SMALLEST_WINDOW = 16.0  # the side of an object's candidate window is at least this, in pixels (Eq. 5)
L1_LOSSES = {"image": distance_l1, "stride": stride_l1}


def detect(box: float = 7.5, l1: float = 1.5, l1_units: str = "image") -> Task:
    """The detection task with the gains of its box terms; `l1_units` is the frame of the L1 term, "image" or "stride"."""
    return Task(
        name="detect",
        needs=("boxes",),
        stems=(BOX_STEM,),
        shared={},
        kinds={"boxes": Boxes},
        targets=no_targets,
        shapes=box_shapes,
        overlap=Overlap(box_similarity, box_window, form="boxes", numbers=(SMALLEST_WINDOW,)),
        terms=(Term("box", box, ciou_loss), Term("l1", l1, L1_LOSSES[l1_units])),
        finish=finish_boxes,
        metrics=("box",),
    )


def no_targets(instances: Instances, size: int) -> Mapping[str, Tensor]:
    """Detection needs nothing beyond boxes and labels."""
    return {}


def box_shapes(outputs: Mapping[str, Tensor], points: Tensor, strides: Tensor) -> Mapping[str, Tensor]:
    """Boxes (B, A, 4) in canvas pixels from distances l, t, r, b in strides, measured from the anchor centre."""
    distances = full(outputs["box"]) * strides[..., None]
    return {"boxes": torch.cat((points - distances[..., :2], points + distances[..., 2:]), -1)}


def box_similarity(predicted: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> Tensor:
    """CIoU, floored at 0, of every anchor with every object, (B, n, A)."""
    return box_ciou(predicted["boxes"][:, None], truth["boxes"][:, :, None]).clamp(min=0)


def box_window(points: Tensor, strides: Tensor, truth: Mapping[str, Tensor]) -> Tensor:
    """Anchor centres strictly inside the object's window, whose sides are at least 16 px (Eq. 4-6), (B, n, A) bool."""
    low, high = truth["boxes"].chunk(2, -1)
    half = (high - low).clamp(min=SMALLEST_WINDOW)[:, :, None] / 2
    return ((points - (low + high)[:, :, None] / 2).abs() < half).all(-1)


def finish_boxes(rows: Mapping[str, Tensor], shared: Mapping[str, Tensor]) -> Mapping[str, Shape]:
    """The boxes of the chosen rows."""
    return {"boxes": Boxes(rows["boxes"])}

"""Oriented boxes: four distances in a frame turned by a raw angle, compared by ProbIoU (arXiv 2606.03748, 3.4.3; arXiv 2106.06072)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import UsageError
from ..geometry import Boxes, Shape
from ..geometry.rboxes import RBoxes, canonical, probiou, rbox_bounds
from ..geometry.suppress_rotated import rotated_nms
from ..losses.rboxes import angle_loss, nearest_l1, nearest_stride_l1, probiou_loss, rotated_l1, rotated_stride_l1
from ..models.head import Stem
from ..numerics.islands import full
from ..types import Instances
from .base import Overlap, Task, Term
from .detect import BOX_STEM, SMALLEST_WINDOW

ANGLE_STEM = Stem({"angle": 1}, floor=1)
SMALLEST_SIDE = 2.0  # px; a thinner object is not taught
L1_LOSSES = {
    ("label", "image"): rotated_l1,
    ("label", "stride"): rotated_stride_l1,
    ("nearest", "image"): nearest_l1,
    ("nearest", "stride"): nearest_stride_l1,
}


def obb(box: float = 7.5, l1: float = 1.5, l1_units: str = "image", l1_form: str = "label", angle: float = 1.0) -> Task:
    """The task of oriented boxes; `l1_units` as in detection.

    `l1_form` says in which of its four equal forms the L1 term takes the true box: "label", long side first, or "nearest" to the predicted
    angle, which makes the term blind to the form that the network chose.
    """
    if (l1_form, l1_units) not in L1_LOSSES:
        raise UsageError(f"l1_form and l1_units: expected label or nearest and image or stride, got {l1_form} and {l1_units}; choose these")
    return Task(
        name="obb",
        needs=("boxes", "rboxes"),
        stems=(BOX_STEM, ANGLE_STEM),
        shared={},
        kinds={"boxes": Boxes, "rboxes": RBoxes},
        targets=rbox_targets,
        shapes=rbox_shapes,
        overlap=Overlap(rbox_similarity, rbox_window, cost=6, form="rboxes", numbers=(SMALLEST_WINDOW, SMALLEST_SIDE)),
        terms=(
            Term("box", box, probiou_loss),
            Term("l1", l1, L1_LOSSES[l1_form, l1_units]),
            Term("angle", angle, angle_loss),
        ),
        finish=finish_rboxes,
        metrics=("obb",),
        nms=rotated_nms,
        row=("rboxes",),
    )


def rbox_targets(instances: Instances, size: int) -> Mapping[str, Tensor]:
    """Canonical rotated boxes, {"rboxes": (n, 5)}."""
    return {"rboxes": canonical(instances.shapes["rboxes"].data.float())}


def rbox_shapes(outputs: Mapping[str, Tensor], points: Tensor, strides: Tensor) -> Mapping[str, Tensor]:
    """Rotated boxes (B, A, 5) in canvas pixels and their bounds, from distances in strides in the frame turned by theta about the anchor.

    theta is the raw output (Eq. 13).
    """
    low, high = (full(outputs["box"]) * strides[..., None]).chunk(2, -1)
    theta = full(outputs["angle"])  # (B, A, 1)
    u, v = ((high - low) / 2).chunk(2, -1)
    c, s = theta.cos(), theta.sin()
    centre = points + torch.cat((u * c - v * s, u * s + v * c), -1)
    rboxes = torch.cat((centre, low + high, theta), -1)
    return {"boxes": rbox_bounds(rboxes), "rboxes": rboxes}


def rbox_similarity(predicted: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> Tensor:
    """ProbIoU of every anchor with every object, in pixels, (B, n, A)."""
    return probiou(predicted["rboxes"][:, None], truth["rboxes"][:, :, None]).clamp(min=0)


def rbox_window(points: Tensor, strides: Tensor, truth: Mapping[str, Tensor]) -> Tensor:
    """Anchor centres in the object's window or on its border: its own rectangle, each side at least 16 px, (B, n, A) bool.

    Objects with a side below 2 px have none.
    """
    x, y, w, h, theta = truth["rboxes"][:, :, None].unbind(-1)  # (B, n, 1)
    c, s = theta.cos(), theta.sin()
    along = (points[:, 0] - x) * c + (points[:, 1] - y) * s
    across = (points[:, 1] - y) * c - (points[:, 0] - x) * s
    inside = (along.abs() <= w.clamp(min=SMALLEST_WINDOW) / 2) & (across.abs() <= h.clamp(min=SMALLEST_WINDOW) / 2)
    return inside & (torch.minimum(w, h) >= SMALLEST_SIDE)


def finish_rboxes(rows: Mapping[str, Tensor], shared: Mapping[str, Tensor]) -> Mapping[str, Shape]:
    """The rotated boxes of the chosen rows in canonical form, and their bounds."""
    rboxes = RBoxes(canonical(rows["rboxes"]))
    return {"boxes": Boxes(rboxes.bounds()), "rboxes": rboxes}

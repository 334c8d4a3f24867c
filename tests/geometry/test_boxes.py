"""Boxes against torchvision, and what must hold for any box."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.ops import box_iou as torchvision_iou
from torchvision.ops import complete_box_iou

from pellucid.geometry import Boxes
from pellucid.geometry.affine import about, compose, rotation, scaling, shear, translation
from pellucid.geometry.boxes import box_area, box_ciou, box_iou, pairwise_iou
from pellucid.geometry.suppress import box_nms


def random_boxes(n: int, seed: int, side: float = 100.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    low = torch.rand(n, 2, generator=generator) * side
    return torch.cat((low, low + 1 + torch.rand(n, 2, generator=generator) * side), -1)


def test_iou_is_torchvisions():
    a, b = random_boxes(40, 0), random_boxes(30, 1)
    theirs = torchvision_iou(a, b)
    assert (theirs > 0.1).sum() > 100
    torch.testing.assert_close(pairwise_iou(a, b), theirs)


def test_ciou_is_torchvisions():
    a, b = random_boxes(40, 2), random_boxes(30, 3)
    torch.testing.assert_close(box_ciou(a[:, None], b[None]), complete_box_iou(a, b), atol=1e-5, rtol=1e-4)


def survivors(boxes: torch.Tensor, groups: torch.Tensor, iou: float) -> list[int]:
    """The slow way: each group alone, boxes best first."""
    kept: list[int] = []
    overlaps = torchvision_iou(boxes.double(), boxes.double())
    for group in groups.unique():
        chosen: list[int] = []
        for i in (groups == group).nonzero()[:, 0].tolist():
            chosen += [i] if all(overlaps[i, j] <= iou for j in chosen) else []
        kept += chosen
    return sorted(kept)


@pytest.mark.parametrize("count", [0, 1, 150, 1200])  # beyond 1000 torchvision takes another way
@pytest.mark.parametrize(("low", "high"), [(-600, 90), (-600, -200), (0, 100), (-5, -1)])
def test_groups_do_not_suppress_each_other(low, high, count):
    suppressed = 0
    for seed in range(8 if count == 150 else 1):
        generator = torch.Generator().manual_seed(seed)
        corner = torch.rand(count, 2, generator=generator) * (high - low) + low
        boxes = torch.cat((corner, corner + torch.rand(count, 2, generator=generator) * (high - low) * 0.6), -1)
        groups = torch.randint(0, 5, (count,), generator=generator)
        scores = torch.linspace(1, 0, count)
        expected = survivors(boxes, groups, 0.4)
        assert box_nms({"boxes": boxes}, scores, groups, 0.4).tolist() == expected
        suppressed += count - len(expected)
    assert count < 2 or suppressed > 50


def test_an_inverted_box_overlaps_nothing():
    good, inverted = torch.tensor([[10.0, 10, 20, 20]]), torch.tensor([[20.0, 20, 10, 10]])
    assert box_area(inverted) == 0
    assert box_iou(good, inverted) == 0
    assert box_iou(inverted, inverted) == 0


@pytest.mark.parametrize("height", [0.0, 1e-6, 1e-3])
def test_ciou_gradient_of_a_flat_box_is_finite(height):
    flat = torch.tensor([[10.0, 10, 30, 10 + height]], requires_grad=True)
    box_ciou(flat, torch.tensor([[8.0, 8, 28, 18]])).sum().backward()
    assert torch.isfinite(flat.grad).all()
    assert flat.grad.abs().sum() > 0


@given(st.floats(-1000, 1000), st.floats(-1000, 1000), st.floats(0.1, 20))
def test_iou_ignores_translation_and_scale(x, y, scale):
    a, b = random_boxes(5, 4).double(), random_boxes(5, 5).double()
    matrix = compose(translation(x, y), scaling(scale, scale))
    torch.testing.assert_close(box_iou(Boxes(a).warp(matrix).data, Boxes(b).warp(matrix).data), box_iou(a, b))


@given(st.floats(-180, 180), st.floats(-20, 20), st.floats(0.2, 3))
def test_warp_holds_the_warped_corners_tightly(degrees, slant, scale):
    boxes = random_boxes(6, 6).double()
    matrix = compose(about(50, 50, rotation(math.radians(degrees))), shear(math.radians(slant), 0), scaling(scale, scale))
    moved = Boxes(boxes).warp(matrix).data
    for box, result in zip(boxes, moved, strict=True):
        x1, y1, x2, y2 = box.tolist()
        corners = torch.tensor([[x1, y1, 1], [x2, y1, 1], [x2, y2, 1], [x1, y2, 1]], dtype=torch.float64) @ matrix.T
        torch.testing.assert_close(result, torch.cat((corners[:, :2].amin(0), corners[:, :2].amax(0))))


def test_clip_cuts_at_the_frame():
    boxes = Boxes(torch.tensor([[-5.0, -5, 30, 15], [90.0, 5, 130, 70]])).clip(60, 100)
    assert boxes.data.tolist() == [[0, 0, 30, 15], [90, 5, 100, 60]]

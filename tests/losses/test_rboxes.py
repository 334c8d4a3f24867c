"""Losses of rotated boxes: equal rectangles cost nothing, whatever form they are written in."""

import math
from dataclasses import replace

import pytest
import torch

from pellucid.errors import UsageError
from pellucid.losses.rboxes import angle_loss, nearest_l1, nearest_stride_l1, probiou_loss, rotated_l1, rotated_stride_l1
from pellucid.tasks.obb import obb, rbox_shapes, rbox_window
from pellucid.types import Pairs

PI = math.pi
SIZE = (128, 160)


def pairs(predicted: torch.Tensor, truth: torch.Tensor, points: torch.Tensor, stride: float = 8.0) -> Pairs:
    """Pairs whose raw outputs decode to `predicted` (P, 5), written in exactly that form."""
    x, y, w, h, theta = predicted.unbind(-1)
    dx, dy = x - points[:, 0], y - points[:, 1]
    u, v = dx * theta.cos() + dy * theta.sin(), dy * theta.cos() - dx * theta.sin()
    box = torch.stack((w / 2 - u, h / 2 - v, w / 2 + u, h / 2 + v), -1) / stride
    outputs = {"box": box[None].requires_grad_(), "angle": theta[None, :, None].clone().requires_grad_()}
    strides, ones = torch.full((1, len(points)), stride), torch.ones(1, len(points))
    shapes = rbox_shapes(outputs, points[None], strides)
    torch.testing.assert_close(shapes["rboxes"][0], predicted, atol=1e-4, rtol=1e-5)
    valid = torch.ones(1, len(points), dtype=torch.bool)
    return Pairs(
        outputs=outputs,
        shapes=shapes,
        truth={"rboxes": truth[None]},
        shared={},
        object=valid.long(),
        points=points[None],
        strides=strides,
        weight=ones,
        valid=valid,
        size=SIZE,
    )


def forms(rbox: torch.Tensor) -> torch.Tensor:
    """The same rectangle in eight forms, (8, 5)."""
    x, y, w, h, theta = rbox.tolist()
    rows = [(x, y, *((w, h) if k % 2 == 0 else (h, w)), theta + k * PI / 2) for k in range(-4, 4)]
    return torch.tensor(rows)


TRUTH = torch.tensor([70.0, 50, 40, 12, 0.4])
POINTS = torch.tensor([[68.0, 52]]).repeat(8, 1)


@pytest.mark.parametrize("loss", [probiou_loss, angle_loss, nearest_l1, nearest_stride_l1])
def test_equal_rectangles_cost_nothing_in_any_form(loss):
    of_forms = loss(pairs(forms(TRUTH), TRUTH.repeat(8, 1), POINTS))
    assert of_forms.abs().max() < 1e-3
    other = loss(pairs(forms(TRUTH) + torch.tensor([4, 3, 2, 1, 0.1]), TRUTH.repeat(8, 1), POINTS))
    assert other.min() > 10 * of_forms.max()


@pytest.mark.parametrize("loss", [rotated_l1, rotated_stride_l1])
def test_the_l1_term_by_label_draws_to_the_canonical_form(loss):
    found = loss(pairs(forms(TRUTH), TRUTH.repeat(8, 1), POINTS))[0]
    assert found[[0, 4]].max() < 1e-5  # the label's own form, and a whole turn before it
    assert found[[1, 2, 3, 5, 6, 7]].min() > 1e-3


@pytest.mark.parametrize(("degrees", "swapped"), [(89.9, False), (-89.9, False), (89.9, True), (-89.9, True)])
def test_nearly_upright_boxes_do_not_jump(degrees, swapped):
    """A rectangle at 90 degrees, predicted a tenth of a degree to either side and in either form: next to no loss, a small gradient."""
    truth = torch.tensor([70.0, 50, 40, 12, PI / 2])
    theta = math.radians(degrees)
    form = [70.0, 50, 12, 40, theta + PI / 2] if swapped else [70.0, 50, 40, 12, theta]
    made = pairs(torch.tensor([form]), truth[None], POINTS[:1])
    losses = {name: loss(made) for name, loss in (("box", probiou_loss), ("angle", angle_loss), ("l1", nearest_l1))}
    assert all(value.max() < 0.02 for value in losses.values())
    (slope,) = torch.autograd.grad(losses["angle"].sum(), made.outputs["angle"])
    assert 0 < slope.abs().max() < 0.02


@pytest.mark.parametrize(("ratio", "expected"), [(1, 1.0), (2, 0.948), (5, 0.750), (10, 0.555), (20, 0.369)])
def test_the_angle_weight_of_long_boxes(ratio, expected):
    """The stated values at lambda 3; sin^2 is 1 at 45 degrees."""
    truth = torch.tensor([[70.0, 50, 5.0 * ratio, 5, 0.2]])
    made = pairs(truth + torch.tensor([0, 0, 0, 0, PI / 4]), truth, POINTS[:1])
    assert angle_loss(made).item() == pytest.approx(expected, abs=5e-4)


def test_far_angles_and_empty_rows_stay_finite():
    """A raw angle has no bounds, and the rows of absent objects are zeros."""
    predicted = torch.tensor([[70.0, 50, 40, 12, 1000.0], [70, 50, -3, 5, -2e4], [70, 50, 0, 0, 0]])
    for truth in (TRUTH.repeat(3, 1), torch.zeros(3, 5)):
        made = pairs(predicted[:1], truth[:1], POINTS[:1])
        outputs = {
            "box": torch.tensor([[[2.0, 2, 2, 2], [-1, -2, -1, -2], [0, 0, 0, 0]]], requires_grad=True),
            "angle": predicted[None, :, 4:].clone().requires_grad_(),
        }
        shapes = rbox_shapes(outputs, POINTS[None, :3], torch.full((1, 3), 8.0))
        rows = replace(made, outputs=outputs, shapes=shapes, truth={"rboxes": truth[None]}, points=POINTS[None, :3])
        rows = replace(rows, strides=torch.full((1, 3), 8.0))
        for loss in (probiou_loss, angle_loss, rotated_l1, nearest_l1):
            value = loss(rows)
            grads = torch.autograd.grad(value.sum(), list(outputs.values()), allow_unused=True)
            assert torch.isfinite(value).all()
            assert all(torch.isfinite(grad).all() for grad in grads if grad is not None)


def test_the_l1_term_is_in_units_of_the_image():
    truth = torch.tensor([[70.0, 50, 40, 12, 0.0]])
    wider = pairs(torch.tensor([[70.0, 50, 44, 12, 0.0]]), truth, POINTS[:1])  # l and r 2 px longer
    assert rotated_l1(wider).item() == pytest.approx(4 / 160 / 4, rel=1e-4)
    assert rotated_stride_l1(wider).item() == pytest.approx(4 / 8 / 4, rel=1e-4)
    higher = pairs(torch.tensor([[70.0, 50, 40, 16, 0.0]]), truth, POINTS[:1])
    assert nearest_l1(higher).item() == pytest.approx(4 / 128 / 4, rel=1e-4)


def test_candidates_lie_in_the_turned_window_with_its_border():
    points = torch.tensor([[50.0, 50], [60, 60], [60, 40], [64.0, 50], [58, 50], [50, 58], [58.1, 50]])
    strides = torch.full((7,), 8.0)
    turned = torch.tensor([[[50.0, 50, 40, 4, PI / 4]]])  # widened to 40 x 16 along the diagonal
    assert rbox_window(points, strides, {"rboxes": turned})[0, 0].tolist() == [True, True, False, False, True, True, True]
    upright = torch.tensor([[[50.0, 50, 10, 10, 0.0]]])  # 16 x 16, its border included
    assert rbox_window(points, strides, {"rboxes": upright})[0, 0].tolist() == [True, False, False, False, True, True, False]
    thin = torch.tensor([[[50.0, 50, 40, 1.99, 0.0]]])
    assert not rbox_window(points, strides, {"rboxes": thin}).any()


def test_unknown_options_are_refused():
    with pytest.raises(UsageError, match="nearest"):
        obb(l1_form="best")
    assert [term.gain for term in obb(angle=0).terms] == [7.5, 1.5, 0]

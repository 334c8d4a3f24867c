"""Rotated boxes in training pictures: moved by the matrix alone, kept or dropped by what is seen of them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.augment.paste import MIN_VISIBLE, move
from pellucid.augment.plan import View, plan
from pellucid.augment.presets import AugmentConfig
from pellucid.geometry import Boxes
from pellucid.geometry.affine import about, compose, rotation, translation
from pellucid.geometry.rboxes import RBoxes, canonical, rbox_bounds, rbox_corners
from pellucid.types import Instances

S = 100


def objects(rboxes, size=(S, S)) -> Instances:
    data = torch.as_tensor(rboxes, dtype=torch.float32).reshape(-1, 5)
    bounds = Boxes(rbox_bounds(data)).clip(*size)
    return Instances(torch.arange(len(data)), {"boxes": bounds, "rboxes": RBoxes(data)}, ignore=torch.zeros(len(data), dtype=torch.bool))


def polygon(rbox):
    from shapely.geometry import Polygon  # an oracle that a machine for GPU tests need not have

    return Polygon(rbox_corners(rbox.double()).tolist())


@pytest.mark.parametrize("shift", [0.0, 20.0, -12.0])
@pytest.mark.parametrize("turn", [0.0, 0.4])
def test_a_rectangle_half_outside_keeps_its_sides_and_angle(shift, turn):
    """30 degrees, cut by the output's edge: the parameters are those of the whole rectangle, the box is around the visible part."""
    matrix = compose(translation(shift, 0), about(S / 2, S / 2, rotation(turn)))
    view = View((0,), (0, 0), S, matrix, S)
    moved = move(view, [objects([[8.0, 50, 44, 20, math.pi / 6]])], [(S, S)], [(S, S)])
    assert len(moved) == 1
    rbox = moved.shapes["rboxes"].data[0]
    centre = matrix[:2, :2] @ torch.tensor([8.0, 50]).double() + matrix[:2, 2]
    assert rbox.tolist() == pytest.approx([*centre.tolist(), 44, 20, math.pi / 6 + turn], abs=1e-4)
    expected = Boxes(rbox_bounds(rbox[None])).clip(S, S).data
    torch.testing.assert_close(moved.shapes["boxes"].data, expected)


def test_kept_by_the_visible_share_of_the_rectangle_not_of_its_bounds():
    """A thin diagonal, of which a tenth is all but nothing of the box around it; and one whose cut by canvas and output is the same."""
    from shapely import box, intersection

    view = View((0,), (0, 0), S, torch.eye(3, dtype=torch.float64), S)
    data = torch.tensor([[x, 50, 80, 6, math.pi / 4] for x in (-30.0, -24, -20, -10, 0, 20)])
    shares = [intersection(polygon(row), box(0, 0, S, S)).area / polygon(row).area for row in data]
    kept = move(view, [objects(data)], [(S, S)], [(S, S)]).labels.tolist()
    assert kept == [place for place, share in enumerate(shares) if share >= MIN_VISIBLE]
    assert 0 < len(kept) < len(data)
    assert any(MIN_VISIBLE < share < math.sqrt(MIN_VISIBLE) for share in shares)  # two cuts of the same part are one


@given(seed=st.integers(0, 10**6), name=st.sampled_from(["mosaic", "single"]))
@settings(max_examples=60, deadline=None)
def test_random_plans_move_corners_with_the_picture(seed, name):
    config = AugmentConfig(mosaic=float(name == "mosaic"), scale=0.5, translate=0.2, degrees=180, flipud=0.5)
    view = plan(30, config, S, seed, 0, seed % 30).views[0]
    generator = torch.Generator().manual_seed(seed)
    rand = torch.rand(len(view.rows), 6, 5, generator=generator)
    data = canonical(rand * torch.tensor([S, S, 40, 15, 9]) + torch.tensor([0, 0, 5, 3, -4]))
    moved = move(view, [objects(part) for part in data], [(S, S)] * len(view.rows), [(S, S)] * len(view.rows))
    offsets = view.offsets([(S, S)] * len(view.rows))
    corners = torch.cat([rbox_corners(part.double()) + torch.tensor(o).double() for part, o in zip(data, offsets, strict=True)])
    corners = corners @ view.matrix[:2, :2].T + view.matrix[:2, 2]
    found = moved.shapes["rboxes"].corners().double()
    if len(found):
        distance = torch.cdist(found.mean(1), corners.mean(1))
        nearest = corners[distance.argmin(1)]
        assert torch.cdist(found, nearest).amin(-1).max() < 1e-3
    assert torch.equal(canonical(moved.shapes["rboxes"].data), moved.shapes["rboxes"].data)
    boxes = moved.shapes["boxes"].data
    assert len(boxes) == 0 or (boxes.min() >= 0 and boxes.max() <= S)

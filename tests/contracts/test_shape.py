"""What every shape type can do, shapes of the data and shapes of predictions alike."""

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.data.columns import SHAPES
from pellucid.geometry import Boxes
from pellucid.geometry.affine import about, compose, rotation, scaling, translation
from pellucid.geometry.keypoints import Keypoints
from pellucid.geometry.masks import Masks
from pellucid.geometry.polygons import Polygons
from pellucid.geometry.rboxes import RBoxes
from pellucid.tasks import TASKS

SIDE = 100
BOX = torch.tensor([[10.0, 20, 30, 60], [50, 5, 90, 45], [0, 0, 8, 8]])


def rings(*corners):
    return [np.array(ring, np.float64) for ring in corners]


def polygons():
    """An object of two parts, one with a hole, and two of one part; no cell's centre lies on an edge."""
    outer, hole = rings([[10, 20], [40, 20], [40, 60], [10, 60]], [[20, 30], [30, 30], [30, 50], [20, 50]])
    beside, second, third = rings([[60.3, 70], [80, 70], [80, 90]], [[50, 5], [90, 10.2], [60, 45]], [[0, 0], [8, 0], [4.1, 8]])
    return Polygons.from_parts([[outer, beside], [second], [third]], [[hole], [], []])


def masks():
    logits = torch.full((3, 25, 25), -1.0)
    for grid, (x1, y1, x2, y2) in zip(logits, (BOX / 4).long().tolist(), strict=True):
        grid[y1:y2, x1:x2] = 1
    return Masks.of_prototypes(torch.eye(3), logits, BOX)


EXAMPLES = {
    "boxes": lambda: Boxes(BOX),
    "keypoints": lambda: Keypoints(torch.tensor([[[10.0, 20, 2], [30, 60, 1]], [[50, 5, 2], [90, 45, 2]], [[1, 1, 1], [8, 8, 2]]]), (1, 0)),
    "polygons": polygons,
    "rboxes": lambda: RBoxes(torch.tensor([[30.0, 40, 40, 20, 0.3], [70, 30, 30, 8, -0.7], [20, 80, 30, 20, 2.0]])),
    "masks": masks,
}


def same(a, b, tolerance=1e-3):
    """Whether two shapes hold the same objects, whichever tensors they keep them in."""
    if isinstance(a, Masks):
        assert torch.equal(a.dense(SIDE, SIDE), b.dense(SIDE, SIDE))
        torch.testing.assert_close(a.boxes, b.boxes, atol=tolerance, rtol=0)
    elif isinstance(a, Polygons):
        assert [part.shape for i in range(len(a)) for part in a.parts(i)] == [part.shape for i in range(len(b)) for part in b.parts(i)]
        torch.testing.assert_close(a.points, b.points, atol=tolerance, rtol=0)
    else:
        torch.testing.assert_close(a.data, b.data, atol=tolerance, rtol=1e-5)


@pytest.fixture(params=sorted(EXAMPLES))
def shape(request):
    return EXAMPLES[request.param]()


def test_every_kind_of_a_task_and_of_the_data_is_held_to_this():
    kinds = {kind for make in TASKS.values() for kind in make().kinds.values()}
    assert kinds <= {type(make()) for make in EXAMPLES.values()}
    assert set(SHAPES) < set(EXAMPLES)


def test_the_examples_are_not_trivial(shape):
    assert len(shape) == 3
    assert (shape.bounds()[:, 2:] - shape.bounds()[:, :2]).min() > 1


def test_indexing(shape):
    same(shape[torch.tensor([2, 0])][1:], shape[:1])
    same(shape[torch.tensor([False, True, False])], shape[1:2])
    same(shape[torch.tensor([1, 1])][1:], shape[1:2])
    assert len(shape[:0]) == len(shape[torch.zeros(3, dtype=torch.bool)]) == 0
    torch.testing.assert_close(shape[torch.tensor([2, 0, 1])].bounds(), shape.bounds()[[2, 0, 1]])


def test_joining(shape):
    same(type(shape).cat([shape[:1], shape[1:]]), shape)
    same(type(shape).cat([shape]), shape)
    assert len(type(shape).empty()) == 0
    for parts in ([type(shape).empty(), shape], [shape, type(shape).empty()]):
        same(type(shape).cat(parts), shape)
    assert len(type(shape).cat([type(shape).empty(), type(shape).empty()])) == 0


def test_what_is_returned_is_of_the_same_type(shape):
    for other in (shape[:2], shape.warp(translation(1, 2)), shape.clip(50, 50), shape.to("cpu"), type(shape).cat([shape, shape])):
        assert type(other) is type(shape)
    assert isinstance(type(shape).extent, bool)


def test_translation_and_scale_come_back(shape):
    there = compose(translation(7, -3), scaling(1.5, 1.5))
    same(shape.warp(there).warp(torch.linalg.inv(there)), shape)


def test_warps_compose(shape):
    a, b = about(50, 50, rotation(math.pi / 2)), translation(4, 9)
    same(shape.warp(a).warp(b), shape.warp(compose(b, a)))


def test_bounds_follow_a_warp_that_keeps_the_axes(shape):
    matrix = compose(translation(7, -3), scaling(1.5, 1.5))
    moved = Boxes(shape.bounds()).warp(matrix).data
    torch.testing.assert_close(shape.warp(matrix).bounds(), moved, atol=1e-3, rtol=0)


def test_two_mirrors_are_none(shape):
    mirror = about(SIDE / 2, SIDE / 2, scaling(-1, 1))
    once = shape.warp(mirror)
    expected = Boxes(shape.bounds()).warp(mirror).data
    torch.testing.assert_close(once.bounds(), expected, atol=1e-3, rtol=0)
    if isinstance(shape, Polygons):
        torch.testing.assert_close(once.area(), shape.area())  # outer rings stay outer
        assert torch.equal(once.rasterise(SIDE, SIDE), shape.rasterise(SIDE, SIDE).flip(-1))
    else:
        same(once.warp(mirror), shape)


def test_clip_stays_in_the_frame(shape):
    cut = shape.warp(translation(-20, -20)).clip(40, 50)
    assert len(cut) == len(shape)  # objects stay: what is dropped is decided by what can be seen
    if isinstance(shape, RBoxes):
        same(cut, shape.warp(translation(-20, -20)))  # a cut would change the angle
        return
    bounds = cut.bounds()
    assert bounds.min() >= 0
    assert (bounds <= torch.tensor([50.0, 40, 50, 40])).all()
    same(cut.clip(40, 50), cut)


def test_what_lies_inside_is_not_cut(shape):
    same(shape.clip(SIDE, SIDE), shape)
    assert torch.equal(shape.visible(SIDE, SIDE) > 1 - 1e-6, torch.ones(3, dtype=torch.bool))


@settings(max_examples=25, deadline=None)
@given(x=st.floats(-150, 150), y=st.floats(-150, 150), turn=st.floats(-3, 3))
@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_the_visible_share(kind, x, y, turn):
    shape = EXAMPLES[kind]()
    moved = shape.warp(compose(translation(x, y), about(50, 50, rotation(turn))))
    share = moved.visible(SIDE, SIDE)
    assert share.shape == (3,)
    assert share.min() >= 0
    assert share.max() <= 1
    if isinstance(shape, Keypoints):
        assert (share == 1).all()  # points have no area
    elif isinstance(shape, Polygons | RBoxes):
        gone = moved.warp(translation(1000, 0))
        assert not gone.visible(SIDE, SIDE).any()
    for i in range(3):
        torch.testing.assert_close(moved[i : i + 1].visible(SIDE, SIDE)[0], share[i], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["boxes", "polygons", "rboxes"])
def test_half_outside_is_half_visible(kind):
    shape = {
        "boxes": lambda: Boxes(torch.tensor([[-10.0, 20, 10, 60]])),
        "polygons": lambda: Polygons.from_parts([rings([[-10, 20], [10, 20], [10, 60], [-10, 60]])]),
        "rboxes": lambda: RBoxes(torch.tensor([[0.0, 50, 40, 10, 0.4]])),
    }[kind]()
    assert shape.visible(SIDE, SIDE).item() == pytest.approx(0.5, abs=1e-5)


def test_empty_shapes_pass_through(shape):
    for empty in (type(shape).empty(), shape[:0]):
        moved = empty.warp(about(5, 5, rotation(0.3))).clip(10, 10)
        assert len(moved) == 0
        assert moved.bounds().shape == (0, 4)
        assert moved.visible(10, 10).shape == (0,)
        assert len(moved.to("cpu")[:0]) == 0


def test_nothing_is_changed_in_place(shape):
    before = pickle.dumps(shape)
    shape.warp(about(50, 50, rotation(0.3))).clip(30, 30).warp(scaling(-1, 1))
    type(shape).cat([shape, shape])
    assert pickle.dumps(shape) == before


def test_shapes_travel_between_processes(shape):
    same(pickle.loads(pickle.dumps(shape)), shape)

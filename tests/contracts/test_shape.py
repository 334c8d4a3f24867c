"""What every shape type can do."""

import math

import pytest
import torch

from pellucid.geometry.affine import about, compose, rotation, scaling, translation
from pellucid.tasks import TASKS

KINDS = {name: kind for make in TASKS.values() for name, kind in make().kinds.items()}
EXAMPLES = {"boxes": torch.tensor([[10.0, 20, 30, 60], [50, 5, 90, 45], [0, 0, 8, 8]])}


@pytest.fixture(params=sorted(KINDS))
def shape(request):
    return KINDS[request.param](EXAMPLES[request.param])


def test_indexing_and_joining(shape):
    assert len(shape) == 3
    picked = shape[torch.tensor([2, 0])]
    assert torch.equal(picked.data, shape.data[[2, 0]])
    assert torch.equal(shape[torch.tensor([False, True, False])].data, shape.data[1:2])
    assert torch.equal(type(shape).cat([shape[:1], shape[1:]]).data, shape.data)
    assert len(type(shape).empty()) == 0
    assert len(type(shape).cat([type(shape).empty(), shape])) == 3


def test_translation_and_scale_come_back(shape):
    there = compose(translation(7, -3), scaling(1.5, 0.5))
    back = shape.warp(there).warp(torch.linalg.inv(there))
    torch.testing.assert_close(back.data, shape.data)


def test_warps_compose(shape):
    a, b = about(50, 50, rotation(math.pi / 2)), translation(4, 9)
    torch.testing.assert_close(shape.warp(a).warp(b).data, shape.warp(compose(b, a)).data)


def test_clip_stays_in_the_frame(shape):
    bounds = shape.warp(translation(-20, -20)).clip(40, 50).bounds()
    assert bounds.min() >= 0
    assert (bounds <= torch.tensor([50.0, 40, 50, 40])).all()


def test_empty_shapes_pass_through(shape):
    empty = type(shape).empty().warp(translation(1, 1)).clip(10, 10)
    assert len(empty) == 0
    assert empty.bounds().shape == (0, 4)

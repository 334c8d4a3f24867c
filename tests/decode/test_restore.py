import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.decode import restore
from pellucid.geometry import Boxes, Letterbox
from pellucid.types import Instances

SIDES = st.integers(1, 5000)


def instances(boxes):
    return Instances(torch.arange(len(boxes)), {"boxes": Boxes(boxes)}, torch.linspace(1, 0.5, len(boxes)))


def random_boxes(height, width, seed):
    corners = torch.rand(20, 2, 2, generator=torch.Generator().manual_seed(seed)).sort(1).values
    return (corners * torch.tensor([width, height])).reshape(20, 4)


@settings(max_examples=150, deadline=None)
@given(SIDES, SIDES, st.integers(1, 40), st.integers(0, 99))
def test_round_trip_is_exact(height, width, units, seed):
    box = Letterbox.fit(height, width, 32 * units)
    original = random_boxes(height, width, seed)
    back = restore(instances(original).warp(box.matrix()), box)
    tolerance = 1e-3 + 2e-6 * max(height, width)  # float32 on the canvas, scaled back
    tolerance += 1e-4 * max(width / box.new_width, height / box.new_height)
    assert len(back) > 0
    torch.testing.assert_close(back.shapes["boxes"].data, original[back.labels], atol=tolerance, rtol=0)


@settings(max_examples=150, deadline=None)
@given(SIDES, SIDES, st.integers(1, 40), st.integers(0, 99))
def test_whole_canvas_pixels_come_back_within_half_a_pixel_of_the_canvas(height, width, units, seed):
    box = Letterbox.fit(height, width, 32 * units)
    original = random_boxes(height, width, seed)
    found = Boxes(Boxes(original).warp(box.matrix()).data.round())
    back = restore(Instances(torch.arange(20), {"boxes": found}), box)
    error = (back.shapes["boxes"].data - original[back.labels]).abs()
    gain = torch.tensor([box.new_width / width, box.new_height / height]).repeat(2)
    assert (error <= 0.5 / gain + 1e-2).all()


def test_the_size_that_was_once_three_pixels_off():
    box = Letterbox.fit(1571, 3775, 1280)
    original = random_boxes(1571, 3775, 0)
    back = restore(instances(original).warp(box.matrix()), box)
    assert len(back) == 20
    torch.testing.assert_close(back.shapes["boxes"].data, original, atol=2e-3, rtol=0)


def test_what_lies_in_the_padding_is_left_out_and_the_rest_is_clipped():
    box = Letterbox.fit(50, 100, 64)
    assert (box.new_height, box.top) == (32, 16)
    found = restore(instances(torch.tensor([[0.0, 0, 64, 15], [-5, 10, 32, 32], [10, 50, 20, 60]])), box)
    assert found.labels.tolist() == [1]
    assert found.scores.tolist() == pytest.approx([0.75])
    assert found.shapes["boxes"].data.tolist() == [[0, 0, 50, 25]]


def test_no_object():
    assert len(restore(instances(torch.zeros(0, 4)), Letterbox.fit(30, 40, 32))) == 0

"""Masks, run-length codes and polygons are tinted where they are, holes left open, and outlined."""

import numpy as np
import pytest
import torch

from pellucid.draw import class_color, contact_sheet, draw
from pellucid.geometry import Boxes, Masks, Polygons
from pellucid.types import Instances

GROUND = np.full((120, 160, 3), 128, np.uint8)
OUTLINE, HOLE = [20, 30, 100, 30, 100, 90, 20, 90], [50, 50, 70, 50, 70, 70, 50, 70]
RING = Polygons.from_parts([[OUTLINE]], [[HOLE]])


def ring_as(kind):
    filled = RING.rasterise(120, 160).float() * 2 - 1
    masks = Masks.of_prototypes(torch.eye(1), filled, torch.tensor([[0.0, 0, 160, 120]]), 1)
    return {"polygons": RING, "masks": masks, "codes": masks.rle(120, 160)}[kind]


def objects(shape):
    return Instances(torch.zeros(len(shape), dtype=torch.int64), {"shape": shape})


@pytest.mark.parametrize("kind", ["polygons", "masks", "codes"])
def test_the_inside_is_tinted_and_the_hole_is_not(kind):
    picture = draw(GROUND, objects(ring_as(kind)), ["a"], labels=False).astype(int)
    inside = picture[40, 30]
    assert (inside != GROUND[0, 0]).any()
    assert ((inside - 128) * (np.array(class_color(0)) - 128) >= 0).all()  # a shade towards the colour
    assert abs(inside - 128).max() < abs(np.array(class_color(0)) - 128).max()
    assert (picture[60, 60] == 128).all()
    assert (picture[10, 10] == 128).all()
    for y, x in ((30, 60), (60, 20), (60, 50)):  # outer and inner rings
        assert (picture[y, x] == class_color(0)).all()


@pytest.mark.parametrize("kind", ["polygons", "masks", "codes"])
def test_nothing_to_draw_changes_nothing(kind):
    shape = ring_as(kind)
    assert np.array_equal(draw(GROUND, objects(shape[:0]), ["a"]), GROUND)
    blank = {"polygons": Polygons.from_parts([[]]), "masks": shape.clip(0, 0) if kind == "masks" else None}.get(kind)
    if blank is not None:
        assert np.array_equal(draw(GROUND, objects(blank), ["a"], labels=False), GROUND)


@pytest.mark.parametrize("kind", ["polygons", "masks", "codes"])
def test_shapes_are_scaled_with_a_sheet(kind):
    sheet = np.asarray(contact_sheet([GROUND], [objects(ring_as(kind))], ["a"], tile=320, labels=False)).astype(int)
    assert (sheet[120, 120] == 128).all()
    assert (sheet[80, 60] != 128).any()


def test_shapes_beyond_the_picture_are_drawn_as_far_as_they_are_seen():
    far = Polygons.from_parts([[[-40, -40, 30, -40, 30, 40, -40, 40]], [[500, 500, 600, 500, 600, 600]]])
    picture = draw(GROUND, Instances(torch.tensor([0, 1]), {"boxes": Boxes(far.bounds()), "polygons": far}), ["a", "b"], labels=False)
    assert (picture[10, 10] != 128).any()
    assert (picture[100, 140] == 128).all()

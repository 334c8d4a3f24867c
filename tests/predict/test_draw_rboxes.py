"""Rotated boxes on pictures."""

import math

import numpy as np
import torch
from PIL import Image, ImageDraw

from pellucid.draw import class_color, draw
from pellucid.geometry import Boxes
from pellucid.geometry.rboxes import RBoxes, rbox_bounds
from pellucid.types import Instances

GROUND = np.full((200, 300, 3), 128, np.uint8)


def objects(rboxes):
    data = torch.tensor(rboxes, dtype=torch.float32).reshape(-1, 5)
    return Instances(torch.arange(len(data)), {"boxes": Boxes(rbox_bounds(data)), "rboxes": RBoxes(data)})


def test_the_turned_outline_is_drawn_in_place_of_the_box_around_it():
    rbox = [150.0, 100, 120, 40, math.pi / 6]
    picture = draw(GROUND, objects([rbox]), ["a"], labels=False)
    touched = (picture != GROUND).any(-1)
    expected = Image.new("1", (300, 200))
    corners = RBoxes(torch.tensor([rbox])).corners()[0].tolist()
    ImageDraw.Draw(expected).polygon([tuple(corner) for corner in corners], outline=1, width=1)
    assert touched[np.asarray(expected)].mean() > 0.95
    assert (picture[touched] == class_color(0)).all()
    x1, y1, _, y2 = (int(value) for value in rbox_bounds(torch.tensor(rbox)).tolist())
    assert not touched[y1 - 2 : y1 + 10, x1 - 2 : x1 + 10].any()  # a corner of the box around it
    assert not touched[: y1 - 3].any()
    assert not touched[y2 + 4 :].any()
    assert touched[100:102, 150:152].any()  # the mark starts at the centre


def test_boxes_over_the_edge_and_none_at_all():
    assert np.array_equal(draw(GROUND, objects([]), ["a"]), GROUND)
    picture = draw(GROUND, objects([[0, 0, 100, 50, 0.3], [-500, 90, 40, 20, 1.0]]), ["a", "b"])
    assert (picture != GROUND).any()

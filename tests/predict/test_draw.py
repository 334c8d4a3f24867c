import numpy as np
import pytest
import torch
from PIL import ImageDraw

from pellucid import draw as draw_module
from pellucid.draw import class_color, contact_sheet, draw
from pellucid.geometry import Boxes
from pellucid.geometry.keypoints import Keypoints
from pellucid.types import Instances

GROUND = np.full((200, 300, 3), 128, np.uint8)


def objects(boxes, labels=None, scores=None):
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    labels = torch.zeros(len(boxes), dtype=torch.int64) if labels is None else torch.tensor(labels)
    return Instances(labels, {"boxes": Boxes(boxes)}, None if scores is None else torch.tensor(scores))


def changed(picture, ground=GROUND):
    return (picture != ground).any(-1)


def test_the_outline_lies_inside_the_box_in_the_class_colour():
    picture = draw(GROUND, objects([[50, 60, 150, 160]], [3]), ["a", "b", "c", "d"], labels=False)
    touched = changed(picture)
    ys, xs = touched.nonzero()
    assert (xs.min(), ys.min(), xs.max(), ys.max()) == (50, 60, 149, 159)
    assert not touched[62:158, 52:148].any()
    assert (picture[touched] == class_color(3)).all()
    assert (GROUND == 128).all()


def test_no_object_changes_nothing():
    assert np.array_equal(draw(GROUND, objects([]), ["a"]), GROUND)


@pytest.mark.parametrize("box", [[0, 0, 300, 200], [280, 0, 300, 10], [0, 190, 20, 200], [100, 100, 101, 101]])
def test_tags_stay_within_the_picture(box):
    with_tag = changed(draw(GROUND, objects([box], scores=[0.5]), ["tree"]))
    without = changed(draw(GROUND, objects([box], scores=[0.5]), ["tree"], labels=False))
    assert with_tag.sum() > without.sum() + 100


def test_no_tag_in_a_crowd_is_larger_than_its_object(monkeypatch):
    texts = []
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda self, at, words, **style: texts.append(words))
    boxes = [[20 * i, 50, 20 * i + 12, 62] for i in range(12)]
    draw(GROUND, objects([*boxes, [0, 100, 150, 200]], scores=[0.5] * 12 + [0.9]), ["tree"])
    assert texts == ["tree  0.90"], "a space of small letters is doubled"
    draw(GROUND, objects(boxes[:3], scores=[0.5] * 3), ["tree"])
    assert len(texts) > 1


def test_tags_of_a_crowd_never_cover_each_other(monkeypatch):
    fills, texts = [], []
    rectangle, text = ImageDraw.ImageDraw.rectangle, ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        ImageDraw.ImageDraw,
        "rectangle",
        lambda self, place, **style: (style.get("fill") and fills.append(place), rectangle(self, place, **style)),
    )
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda self, at, words, **style: (texts.append(words), text(self, at, words, **style)))
    corner = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([270, 170])
    boxes = torch.cat((corner, corner + 30), 1).tolist()
    draw(GROUND, objects(boxes, scores=torch.linspace(0.2, 0.99, 40).tolist()), ["tree"])
    assert texts[0].split() == ["tree", "0.99"]  # the best first
    assert len(fills) > 15
    for i, a in enumerate(fills):
        for b in fills[:i]:
            assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]


def test_no_object_hides_behind_a_tag(monkeypatch):
    """Objects in a column, each under the next one's tag if that lay over it as usual."""
    boxes = [[100, 20 + 14 * i, 110, 30 + 14 * i] for i in range(8)]
    rows = objects(boxes, scores=[0.5 + 0.01 * i for i in range(8)])
    tags = changed(draw(GROUND, rows, ["tree"]), draw(GROUND, rows, ["tree"], labels=False))
    assert tags.sum() > 100  # the first or the last has room
    for x1, y1, x2, y2 in boxes:
        assert tags[y1:y2, x1:x2].mean() <= draw_module.HIDDEN
    crossing = objects([[50, 60, 150, 160], [60, 47, 70, 57]], scores=[0.9, 0.8])  # the second where the first has its tag
    assert not changed(draw(GROUND, crossing, ["tree"]), draw(GROUND, crossing, ["tree"], labels=False))[47:57, 60:70].any()


def test_lines_leave_a_small_object_to_be_seen():
    big = np.full((2000, 3000, 3), 128, np.uint8)
    for side in (10, 40, 800):
        touched = changed(draw(big, objects([[500, 500, 500 + side, 500 + side]]), ["a"], labels=False), big)
        assert 0 < touched[500 : 500 + side, 500 : 500 + side].mean() < 0.5


def test_a_class_without_a_name_shows_its_number():
    assert draw_module.captions(objects([[0, 0, 9, 9]], [5], [0.5]), ["a"])[0] == ("5 0.50", "0.50")
    assert draw_module.captions(objects([[0, 0, 9, 9]], [0]), ["a"]) == [("a",)]


def test_neighbouring_classes_differ_in_colour():
    colors = torch.tensor([class_color(label) for label in range(12)]).float()
    apart = (colors[:, None] - colors[None]).norm(dim=-1) + 999 * torch.eye(12)
    assert apart.min() > 40


def test_lines_grow_with_the_picture():
    big = np.full((2000, 3000, 3), 128, np.uint8)
    box = [[500, 500, 1500, 1500]]
    small, large = (changed(draw(g, objects(b), ["a"], labels=False), g) for g, b in ((GROUND, [[50, 50, 150, 150]]), (big, box)))
    assert large[1000].sum() > 3 * small[100].sum() > 0


def test_a_sheet_shows_each_picture_scaled_with_its_objects():
    images = [GROUND, np.full((400, 100, 3), 30, np.uint8), GROUND]
    sheet = np.array(contact_sheet(images, [objects([[150, 100, 300, 200]]), objects([]), objects([])], ["a"], columns=2, tile=150))
    assert sheet.shape == (2 * 150 + draw_module.GAP, 2 * 150 + draw_module.GAP, 3)
    assert (sheet[60, 30] == 128).all()
    assert (sheet[75, 75:77] == class_color(0)).all()
    assert (sheet[100, 154 + 10] == 30).all()
    assert contact_sheet([], [], ["a"]).size[0] > 0


def test_points_that_are_there_are_drawn_and_joined_by_their_bones():
    data = torch.tensor([[[20.0, 30, 2], [100, 30, 1], [60, 150, 0], [250, 180, 2]]])
    shapes = {"boxes": Boxes(torch.tensor([[10.0, 10, 290, 195]])), "keypoints": Keypoints(data, skeleton=((0, 1), (1, 2), (2, 3)))}
    touched = changed(draw(GROUND, Instances(torch.zeros(1, dtype=torch.int64), shapes), ["a"], labels=False))
    assert touched[30, 20]
    assert touched[30, 100]
    assert touched[180, 250]
    assert touched[30, 20:100].all()  # the bone
    assert not touched[40:175, 20:240].any()  # the absent point has neither dot nor bone


def test_a_predicted_point_is_drawn_where_it_is_likely_to_be_there():
    data = torch.tensor([[[50.0, 50, 0.9], [150, 150, 0.1]]])
    shapes = {"boxes": Boxes(torch.tensor([[10.0, 10, 290, 195]])), "keypoints": Keypoints(data, predicted=True)}
    touched = changed(draw(GROUND, Instances(torch.zeros(1, dtype=torch.int64), shapes, torch.ones(1)), ["a"], labels=False))
    assert touched[50, 50]
    assert not touched[150, 150]

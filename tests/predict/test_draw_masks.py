"""Masks, run-length codes and polygons are tinted where they are, holes left open, and outlined."""

import numpy as np
import pytest
import torch

from pellucid.draw import class_color, contact_sheet, draw, resized
from pellucid.geometry import Boxes, Masks, Polygons, Rle
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
    for y, x in ((30, 60), (60, 20), (60, 49)):  # outer and inner rings, on their inner side
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


def disc(radius, size):
    """(size, size) bool, around its middle."""
    far = np.hypot(*(np.mgrid[:size, :size] + 0.5 - size / 2))
    return far <= radius


def test_the_edge_of_a_mask_has_no_stairs():
    """Along a circle the line is nowhere twice as strong as elsewhere, and everything lies where it should."""
    codes = Rle.of_masks(torch.from_numpy(disc(40, 120))[None])
    picture = draw(np.zeros((120, 120, 3), np.uint8), objects(codes), ["a"], labels=False)[..., 2].astype(float)
    angles = np.linspace(0, 2 * np.pi, 360, endpoint=False)
    radii = np.arange(30, 48, 0.25)
    x, y = (60 + radii[:, None] * turn for turn in (np.cos(angles), np.sin(angles)))
    left, top = np.floor(x - 0.5).astype(int), np.floor(y - 0.5).astype(int)
    fx, fy = x - 0.5 - left, y - 0.5 - top
    upper, lower = ((1 - fx) * picture[row, left] + fx * picture[row, left + 1] for row in (top, top + 1))
    rays = (1 - fy) * upper + fy * lower  # (radius, angle)
    assert abs(radii[rays.argmax(0)] - 39.5).max() < 1.1
    assert rays.max(0).min() > 0.6 * rays.max(), "the line is closed"
    assert (rays[radii > 42.5] == 0).all()
    assert np.allclose(rays[radii < 36.5], rays[0, 0], atol=1)
    assert len(np.unique(picture)) > 20, "shades between the line and the ground"


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (2, 2)])
def test_what_is_small_or_thin_is_seen_all_the_same(size):
    mask = torch.zeros(1, 60, 60, dtype=torch.bool)
    mask[0, 20 : 20 + size[0], 30 : 30 + size[1]] = True
    picture = draw(np.zeros((60, 60, 3), np.uint8), objects(Rle.of_masks(mask)), ["a"], labels=False)[..., 2]
    strong = picture > class_color(0)[2] / 2
    assert (strong[mask[0].numpy()]).all()
    assert not (strong & ~disc_around(mask[0].numpy())).any()


def disc_around(mask):
    """`mask` with all pixels beside it."""
    wide = np.pad(mask, 1)
    return np.max([np.roll(wide, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1)], 0)[1:-1, 1:-1]


def test_codes_on_a_picture_that_grows_have_smooth_edges():
    codes = Rle.of_masks(torch.from_numpy(disc(20, 60))[None])
    grown = {
        "smooth": resized(objects(codes), 4).shapes["shape"].dense(240, 240)[0].numpy(),
        "stairs": disc(20, 60).repeat(4, 0).repeat(4, 1),
    }
    wrong = {name: (mask != disc(80, 240)).sum() for name, mask in grown.items()}
    assert 0 < wrong["smooth"] < 0.6 * wrong["stairs"]
    same = resized(objects(codes), 1).shapes["shape"]
    assert torch.equal(same.decode(), codes.decode())


def test_shapes_beyond_the_picture_are_drawn_as_far_as_they_are_seen():
    far = Polygons.from_parts([[[-40, -40, 30, -40, 30, 40, -40, 40]], [[500, 500, 600, 500, 600, 600]]])
    picture = draw(GROUND, Instances(torch.tensor([0, 1]), {"boxes": Boxes(far.bounds()), "polygons": far}), ["a", "b"], labels=False)
    assert (picture[10, 10] != 128).any()
    assert (picture[100, 140] == 128).all()

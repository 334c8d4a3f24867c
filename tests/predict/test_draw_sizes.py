"""Masks on pictures of any size, with parts of any thickness; objects that reach far beyond the picture; what large ones cost."""

import time
import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image

from pellucid import shade as shade_module
from pellucid.draw import class_color, draw
from pellucid.geometry import Boxes, Masks, Polygons, Rle
from pellucid.geometry.affine import scaling
from pellucid.types import Instances

COLOR = np.array(class_color(0))


def objects(shape):
    return Instances(torch.zeros(len(shape), dtype=torch.int64), {"shape": shape})


def strip(side):
    """A picture whose longer side is `side`, of few pixels."""
    return np.full((min(side, 440), side, 3), 128, np.uint8)


def cover(picture):
    """How much of the line is seen at each pixel over the tint, by the channel that differs most."""
    channel = abs(COLOR - 128).argmax()
    tinted = 128 + (COLOR[channel] - 128) * shade_module.TINT / 255
    return ((picture[..., channel] - tinted) / (COLOR[channel] - tinted)).clip(0, 1)


def square_with_bits():
    """(80, 160) bool: a square, and apart from it or at it a pixel, a row, a column, a slanting row, spikes."""
    mask = np.zeros((80, 160), np.bool_)
    mask[20:60, 20:60] = True
    mask[10, 80] = mask[30, 90:120] = mask[40:70, 130] = mask[60, 60] = mask[19, 19] = True
    mask[40, 60:75] = mask[62:64, 20:50] = True
    mask[np.arange(50, 75), np.arange(70, 95)] = True
    return mask


@pytest.mark.parametrize("side", [100, 640, 1999, 2200, 3199, 3200, 3799, 3800, 4200, 5000, 8000, 12000])
def test_the_line_is_as_wide_and_the_fill_as_strong_as_meant_at_any_size(side):
    width, ground = max(2, round(side / 400)) // 2, strip(side)
    radius = len(ground) * 0.45
    middle = len(ground) / 2
    turns = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    rays = np.stack((np.cos(turns), np.sin(turns)), 1)
    picture = draw(ground, objects(Polygons.from_parts([[(middle + radius * rays).reshape(-1)]])), ["a"], labels=False)
    core = picture[int(middle) - 5 : int(middle) + 5, int(middle) - 5 : int(middle) + 5]
    assert abs(core - (128 + (COLOR - 128) * shade_module.TINT / 255)).max() <= 1
    places = np.arange(0.6 * radius, radius + 3, 0.25)
    x, y = (np.floor(middle + places[:, None] * rays[:, axis]).astype(int).clip(0, len(ground) - 1) for axis in (0, 1))
    widths = cover(picture)[y, x].sum(0) * 0.25
    assert abs(widths.mean() - width) < 0.2 + 0.03 * width
    assert widths.std() < 0.5


@pytest.mark.parametrize("side", [160, 2000, 4000, 12000])
def test_every_pixel_of_a_mask_is_seen_whatever_else_the_mask_holds(side):
    mask, ground = square_with_bits(), np.full((80, side, 3), 128, np.uint8)
    frame = np.pad(mask, ((0, 0), (0, side - 160)))
    changes = abs(draw(ground, objects(Rle.of_masks(torch.from_numpy(frame)[None])), ["a"], labels=False).astype(int) - 128).max(-1)
    most = abs(COLOR - 128).max()
    assert changes[frame].min() > 0.3 * most
    thin = frame.copy()
    thin[18:62, 18:62] = False
    assert thin.sum() > 100
    assert changes[thin].min() > 0.6 * most, "what is too thin to have an edge is all line, or nearly"


@pytest.mark.parametrize("kind", ["polygons", "codes", "masks"])
@pytest.mark.parametrize("line", [1, 2, 3, 7])
def test_piece_by_piece_is_the_same_as_in_one(kind, line, monkeypatch):
    rough = torch.rand(1, 20, 30, generator=torch.Generator().manual_seed(0))
    masks = Masks.of_prototypes(torch.ones(1, 1), rough * 2 - 0.8, torch.tensor([[-20.3, 5, 300, 230]]), 12.0)
    shape = {"masks": masks, "codes": masks.rle(240, 360), "polygons": masks.polygons()}[kind]
    ground = np.random.default_rng(0).integers(0, 256, (240, line * 800, 3), dtype=np.uint8)
    pictures = []
    for piece in (17, 128, 5000):
        monkeypatch.setattr(shade_module, "PIECE", piece)
        pictures.append(draw(ground, objects(shape), ["a"], labels=False))
    assert (pictures[0] != ground).any(-1).sum() > 20_000
    assert np.array_equal(pictures[0], pictures[1])
    assert np.array_equal(pictures[1], pictures[2])


def test_what_reaches_far_beyond_the_picture_is_drawn_as_far_as_it_is_seen():
    ground = np.full((200, 300, 3), 128, np.uint8)
    far = Polygons.from_parts([[[-1e6, -1e6, 1e6, -1e6, 1e6, 100, -1e6, 100]], [[-3e7, 150, 3e7, 150.1, 3e7, 150.2]]])
    near = Polygons.from_parts([[[-90, -90, 390, -90, 390, 100, -90, 100]], [[-90, 150, 390, 150.1, 390, 150.2]]])
    start = time.perf_counter()
    picture = draw(ground, objects(far), ["a"], labels=False)
    assert time.perf_counter() - start < 1
    assert np.array_equal(picture, draw(ground, objects(near), ["a"], labels=False))
    assert (picture[99] == COLOR).all()
    assert (picture[150] == COLOR).all()
    assert (picture[120] == 128).all()
    assert not (picture[:98] == COLOR).all(-1).any(), "no line along the picture's own edge"
    one = Masks.of_prototypes(torch.ones(1, 1), torch.ones(1, 4, 4), torch.tensor([[0.0, 0, 16, 16]]))
    masks = one.warp(scaling(1e5, 1e5))
    assert (draw(ground, objects(masks), ["a"], labels=False)[100, 150] != 128).any()
    wide = draw(ground, objects(Boxes(torch.tensor([[-2e9, 50, 2e9, 2e9], [4e8, 4e8, 5e8, 5e8]]))), ["a"], labels=False)
    assert (wide[50] == COLOR).all()
    assert (wide[52:] == 128).all()
    assert time.perf_counter() - start < 2


def test_lines_are_thin_around_small_masks_too():
    ground = np.full((100, 8000, 3), 128, np.uint8)
    small = draw(ground, objects(Polygons.from_parts([[[20, 20, 60, 20, 60, 60, 20, 60]]])), ["a"], labels=False)
    assert 0 < (cover(small[20:60, 20:60]) > 0.5).mean() < 0.5


def ring(side):
    turns = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    points = side / 2 + side * 0.48 * np.stack((np.cos(turns), np.sin(turns)), 1)
    return Polygons.from_parts([[points.reshape(-1)]])


def test_of_a_large_mask_only_the_edge_is_blurred(monkeypatch):
    side, blurred, blur = 3000, [], Image.Image.filter
    monkeypatch.setattr(Image.Image, "filter", lambda self, kind: (blurred.append(self.width * self.height), blur(self, kind))[1])
    draw(np.zeros((side, side, 3), np.uint8), objects(ring(side)), ["a"], labels=False)
    assert 0 < sum(blurred) < 0.4 * side**2


@pytest.mark.parametrize("kind", ["polygons", "codes", "masks"])
def test_the_pixels_of_a_large_mask_are_found_in_little_memory(kind):
    side = 1500
    polygons = ring(side)
    codes = Rle.of_masks(polygons.rasterise(side, side))
    masks = Masks.of_prototypes(torch.ones(1, 1), torch.rand(1, 20, 20) - 0.5, torch.tensor([[0.0, 0, side, side]]), side / 20)
    find = {
        "polygons": lambda: polygons.rasterise(side, side).numpy(),
        "codes": lambda: codes.crop(0, 0, 0, side, side),
        "masks": lambda: next(masks.crops())[0],
    }[kind]
    tracemalloc.start()
    try:
        found = find()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.1 < found.mean() < 0.9
    assert peak < 2.5 * side**2

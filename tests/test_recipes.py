"""The scripts that make samples: outlines, rectangles, pasted points."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def recipe():
    """The module of a script in recipes/."""
    sys.path.insert(0, str(ROOT / "recipes"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "recipes"))


def blob(seed, size=24):
    """A random mask with corners that touch and holes."""
    rng = np.random.default_rng(seed)
    mask = rng.random((size, size)) < 0.1
    grown = mask | np.roll(mask, 1, 0) | np.roll(mask, 1, 1) | np.roll(mask, (1, 1), (0, 1))
    grown[[0, -1]] = False
    return grown


def winding(ring, size):
    """How often a ring runs around each pixel's centre, (size, size) int."""
    centre = np.arange(size) + 0.5
    (x1, y1), (x2, y2) = ring.T, np.roll(ring, -1, 0).T
    crosses = (y1 <= centre[:, None]) != (y2 <= centre[:, None])  # (y, edge)
    at = x1 + (centre[:, None] - y1) / np.where(y2 == y1, 1, y2 - y1) * (x2 - x1)
    right = at[:, None] > centre[:, None]  # (y, x, edge)
    return (right * (crosses * np.sign(y2 - y1))[:, None]).sum(2).astype(int)


@pytest.mark.parametrize("seed", range(8))
def test_rings_run_around_exactly_the_pixels(recipe, seed):
    nuclei, mask = recipe("nuclei"), blob(seed)
    rings = nuclei.rings(mask)
    assert len(rings) > 1
    assert sum(nuclei.area(ring) for ring in rings) == mask.sum()
    assert (sum(winding(ring, len(mask)) for ring in rings) == mask).all()


def test_thinned_outline_stays_within_half_a_pixel(recipe):
    nuclei = recipe("nuclei")
    ys, xs = np.mgrid[:40, :40]
    mask = ((xs - 20) / 15) ** 2 + ((ys - 18) / 9) ** 2 <= 1
    (ring,) = nuclei.rings(mask)
    few = nuclei.thinned(ring)
    assert 8 < len(few) < 0.6 * len(ring)
    decoded = winding(few, 40) != 0
    assert (decoded & mask).sum() / (decoded | mask).sum() > 0.97


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=4, max_size=30), st.floats(0, 3.1))
@settings(max_examples=60, deadline=None)
def test_rectangle_holds_the_points_and_is_the_least(points, angle):
    sys.path.insert(0, str(ROOT / "recipes"))
    nuclei = importlib.import_module("nuclei")
    sys.path.remove(str(ROOT / "recipes"))
    points = np.unique(np.array(points, float), axis=0)
    if np.linalg.matrix_rank(points - points[0]) < 2:
        return
    corners = nuclei.rectangle(points)
    across, down = corners[1] - corners[0], corners[3] - corners[0]
    assert abs(across @ down) < 1e-6
    shares = (points - corners[0]) @ np.linalg.inv(np.stack((across, down)))
    assert shares.min() > -1e-6
    assert shares.max() < 1 + 1e-6
    turned = points @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    assert np.hypot(*across) * np.hypot(*down) <= np.ptp(turned, 0).prod() + 1e-6


def test_pasted_points_lie_where_the_pixels_went(recipe):
    quokka = recipe("quokka")
    rng = np.random.default_rng(3)
    spots = np.array([(20, 15), (80, 15), (35, 40), (65, 40), (50, 55), (40, 90), (60, 90)], float)
    pixels = np.zeros((120, 100, 4), np.uint8)
    pixels[..., 3] = 255
    for number, (x, y) in enumerate(spots.astype(int), 1):
        pixels[y - 5 : y + 5, x - 5 : x + 5, :3] = 35 * number
    model = quokka.Quokka(Image.fromarray(pixels), spots, np.array([(0, 0), (100, 0), (100, 120), (0, 120)], float))
    mirrored = 0
    for _ in range(12):
        matrix = quokka.pose(model, rng)
        layer = np.asarray(quokka.paste(Image.new("RGB", (quokka.SIZE,) * 2), model, matrix, np.random.default_rng(0))[0], dtype=float)[
            ..., 0
        ]
        _, placed = quokka.paste(Image.new("RGB", (quokka.SIZE,) * 2), model, matrix, rng)
        sources = list(range(7)) if np.linalg.det(matrix) > 0 else list(quokka.FLIP)
        mirrored += np.linalg.det(matrix) < 0
        inside = [(x, y, i) for (x, y), i in zip(placed.points, sources, strict=True) if min(x, y) >= 1 and max(x, y) < quokka.SIZE - 1]
        values = np.array([layer[int(y), int(x)] for x, y, _ in inside])
        ranks = np.array([i for *_, i in inside])
        assert (np.diff(values[ranks.argsort()]) > 0).all(), "brightness rises with the number of the spot, wherever it went"
    assert 0 < mirrored < 12


def test_hidden_and_outside_points_are_marked(recipe):
    quokka = recipe("quokka")
    cover = np.zeros((quokka.SIZE, quokka.SIZE), bool)
    cover[50:100, 50:100] = True
    over = np.zeros_like(cover)
    over[50:70, 50:70] = True
    points = np.array([(60, 60), (90, 90), (-5, 60), (60, 90), (90, 60), (400, 10), (75, 75)], float)
    outline = np.array([(-20, 50), (100, 50), (100, 100), (-20, 100)], float)
    first, later = (quokka.Placed(mask, points, outline) for mask in (cover, over))
    made = quokka.annotation(first, [later], id=1, image_id=1)
    assert made["keypoints"][2::3] == [1, 2, 0, 2, 2, 0, 2]
    assert made["num_keypoints"] == 5
    assert made["bbox"] == [50, 50, 50, 50]
    assert sorted(zip(made["segmentation"][0][::2], made["segmentation"][0][1::2], strict=True)) == [
        (0, 50),
        (0, 100),
        (100, 50),
        (100, 100),
    ]

"""Polygons against masks: filled, cut, moved, traced and coded, for any rings."""

import math
import time

import numpy as np
import pycocotools.mask as coco_mask
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pellucid.geometry.affine import about, compose, rotation, scaling, shear, translation
from pellucid.geometry.polygons import Polygons
from pellucid.geometry.rings import cut_apart, ring_areas
from pellucid.geometry.rle import Rle

SQUARE = [(0, 0), (10, 0), (10, 10), (0, 10)]
RING = Polygons.from_parts([[SQUARE]], holes=[[[(3, 3), (7, 3), (7, 7), (3, 7)]]])
MASKS = hnp.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9)))
PLACES = st.integers(-39, 79).map(lambda k: k / 4 + 1 / 8)
RINGS = st.lists(st.tuples(PLACES, PLACES), min_size=3, max_size=7)
BOW = [(20, 20.25), (80, 80.5), (80, 20.25), (20, 80.5)]  # no edge through the centre of a pixel
STAR = [(50 + 40 * math.sin(4 * math.pi * k / 5), 50 - 40 * math.cos(4 * math.pi * k / 5)) for k in range(5)]
TWICE = [(20, 20), (80, 20), (80, 80), (20, 80)] * 2
LOOP = [(10, 40), (60, 60), (60.25, 20), (10, 70), (10, 90), (90, 90), (90, 10), (10, 10)]
BRIDGED = [(10, 10), (90, 10), (90, 90), (10, 90), (10, 10), (30, 30), (70, 30), (70, 70), (30, 70), (30, 30)]
CROSSING = {"bow-tie": BOW, "star": STAR, "square walked twice": TWICE, "loop": LOOP, "bridged, inner ring the same way": BRIDGED}
APART = BRIDGED[:6] + BRIDGED[6:9][::-1] + BRIDGED[9:]  # inner ring the other way: a hole
PLAIN = {"comb": [(10, 10), (90, 10), (90, 90), (70, 90), (70, 30), (30, 30), (30, 90), (10, 90)], "bridged hole": APART}


def oracle(polygons: Polygons, height: int, width: int, stride: float) -> tuple[np.ndarray, np.ndarray]:
    """Filled or not, by the angle that the rings turn about each centre; and which centres lie clear of every edge."""
    y, x = (np.mgrid[:height, :width] + 0.5) * stride
    filled, clear = np.zeros((2, len(polygons), height, width), bool)
    for i in range(len(polygons)):
        turns, nearest = np.zeros((height, width)), np.full((height, width), np.inf)
        for ring in polygons.parts(i):
            z = ring.astype(float) @ (1, 1j) - (x + 1j * y)[..., None]  # (h, w, p)
            after = np.roll(z, -1, -1)
            turns += np.angle(after / z).sum(-1) / (2 * math.pi)
            edge = after - z + 1e-30
            share = np.clip((-z * edge.conj()).real / abs(edge) ** 2, 0, 1)
            nearest = np.minimum(nearest, abs(z + share * edge).min(-1))
        filled[i], clear[i] = turns.round() != 0, nearest > 1e-6
    return filled, clear


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(RINGS, max_size=3), min_size=1, max_size=3), st.sampled_from([1, 2, 0.5]))
def test_filling_is_by_winding_number_at_cell_centres(objects, stride):
    polygons = Polygons.from_rings([[np.array(ring) for ring in rings] for rings in objects])
    filled, clear = oracle(polygons, 7, 9, stride)
    assert ((polygons.rasterise(7, 9, stride).numpy() == filled) | ~clear).all()
    assert clear.mean() > 0.5


@settings(max_examples=100, deadline=None)
@given(st.lists(RINGS, min_size=1, max_size=3))
def test_a_cut_leaves_the_cells_inside_as_they_are_and_nothing_outside(rings):
    whole = Polygons.from_rings([[np.array(ring) for ring in rings]])
    cut = whole.clip(8, 11)
    clear = torch.from_numpy(oracle(whole, 8, 11, 1)[1])  # of edges: a crossing is rounded to float32
    assert torch.equal(cut.rasterise(8, 11) & clear, whole.rasterise(8, 11) & clear)
    bounds = cut.bounds()[0]
    assert bounds.min() >= 0
    assert bounds[2] <= 11
    assert bounds[3] <= 8
    assert not cut.warp(translation(20, 20)).rasterise(48, 48)[:, :20].any()


def test_a_cut_is_exact():
    whole = Polygons.from_parts([[[(-4, 2), (4, 2), (4, 6), (-4, 6)]], [[(1, 1), (3, 1), (2, 2)]], [[(-9, -9), (-5, -9), (-5, -5)]]])
    cut = whole.clip(10, 10)
    assert cut.area().tolist() == [16, 1, 0]
    assert whole.visible(10, 10).tolist() == [0.5, 1, 0]
    assert cut.bounds().tolist() == [[0, 2, 4, 6], [1, 1, 3, 2], [0, 0, 0, 0]]
    assert len(cut) == 3


def test_a_concave_outline_cut_into_two_keeps_both():
    arms = Polygons.from_parts([[[(1, 2), (3, 2), (3, 8), (5, 8), (5, 2), (7, 2), (7, 12), (1, 12)]]]).clip(6, 10)
    assert arms.area().tolist() == [16]
    assert arms.rasterise(6, 10)[0].sum(1).tolist() == [0, 0, 4, 4, 4, 4]


def test_a_cut_leaves_no_way_along_the_frame_and_back():
    """Round a corner outside, or from arm to arm: bounds and outlines are those of what is seen."""
    hook = [(60, 80), (-20, 80), (-20, -30), (120, -30), (120, -10), (-5, -10), (-5, 60), (60, 60)]
    comb = [(-10, 10), (20, 10), (20, 30), (-5, 30), (-5, 50), (20, 50), (20, 70), (-10, 70)]
    cut = Polygons.from_parts([[hook], [SQUARE], [comb]]).clip(200, 200)
    assert cut.bounds().tolist() == [[0, 60, 60, 80], [0, 0, 10, 10], [0, 10, 20, 70]]
    assert [sorted(sorted(map(tuple, ring.tolist())) for ring in cut.parts(i)) for i in range(3)] == [
        [[(0, 60), (0, 80), (60, 60), (60, 80)]],
        [sorted(SQUARE)],
        [[(0, 10), (0, 30), (20, 10), (20, 30)], [(0, 50), (0, 70), (20, 50), (20, 70)]],
    ]
    assert cut.area().tolist() == [1200, 100, 800]


def test_a_hole_behind_a_bridge_stays_with_its_outline():
    """Where the outline is cut apart at the frame it is not cut at the bridge."""
    outline = [(20, 20), (60, 20), (60, -10), (130, -10), (130, 50), (110, 50), (110, -5), (75, -5), (75, 20), (80, 20), (80, 80), (20, 80)]
    hole = [(40, 40), (40, 60), (60, 60), (60, 40)]
    for ring in (outline + outline[:1] + hole + hole[:1], hole + hole[:1] + outline + outline[:1]):
        cut = Polygons.from_rings([[np.array(ring, float)]]).clip(100, 100)
        assert cut.area().tolist() == [3500]
        assert len(cut.parts(0)) == 1


def test_many_ways_along_the_frame_take_little_time():
    x = np.linspace(1, 999, 20_000)
    teeth = np.stack((x, np.where(np.arange(len(x)) % 2, -5.0, 30.0)), 1)
    ring = np.concatenate((teeth, (teeth + np.array((-0.01, 1.0)))[::-1]))
    began = time.perf_counter()
    points, starts, own = cut_apart(ring, np.array([0, len(ring)]), (0, 0, 1000, 500))
    assert time.perf_counter() - began < 5  # a search through all corners for every crossing took 25 s
    assert len(own) == len(starts) - 1 >= 1
    assert len(points) > 20_000


def test_bounds_after_a_cut_are_those_of_an_exact_intersection():
    import shapely  # an oracle that a machine for GPU tests need not have

    draw = np.random.default_rng(0)
    stars, frame = [], shapely.box(0, 0, 200, 200)
    for corners in draw.integers(4, 20, 1500):
        turn, reach = np.sort(draw.uniform(0, 2 * np.pi, corners)), draw.uniform(5, 200, corners)
        stars.append(draw.uniform(-60, 260, 2) + np.stack((np.cos(turn), np.sin(turn)), 1) * reach[:, None])
    cut = Polygons.from_parts([[star] for star in stars]).clip(200, 200)
    seen = [shapely.intersection(shapely.make_valid(shapely.Polygon(star)), frame) for star in stars]
    checked = [i for i, part in enumerate(seen) if part.area > 1]
    exact = [shapely.union_all([part for part in shapely.get_parts(seen[i]) if part.area > 0]).bounds for i in checked]
    assert len(checked) > 1300
    np.testing.assert_allclose(cut.bounds()[checked].numpy(), exact, atol=1e-3)
    np.testing.assert_allclose(
        cut.area()[checked].numpy(), [seen[i].area for i in checked], rtol=5e-3, atol=1
    )  # lines measure those that cross
    assert len(cut.rings) - 1 > len(checked)  # some fell apart


@settings(max_examples=150, deadline=None)
@given(st.lists(MASKS, min_size=1, max_size=3))
def test_tracing_a_mask_and_filling_it_again_is_exact(masks):
    for mask in masks:
        polygons = Polygons.from_masks([mask])
        assert (polygons.rasterise(*mask.shape)[0].numpy() == mask).all()
        assert polygons.area()[0] == mask.sum()


def test_tracing_keeps_parts_and_holes():
    mask = np.zeros((9, 12), bool)
    mask[1:6, 1:6] = True
    mask[3, 3] = False
    mask[4:8, 8:11] = True
    polygons = Polygons.from_masks([mask])
    assert sorted(len(part) for part in polygons.parts(0)) == [4, 4, 4]
    assert sorted(ring_areas(polygons.points.double().numpy(), polygons.rings.numpy()).tolist()) == [-1, 12, 25]


@pytest.mark.parametrize("matrix", [scaling(-1, 1), scaling(1, -1), about(3, 5, rotation(1.0)), compose(scaling(-2, 1), shear(0.3, 0))])
def test_a_hole_stays_a_hole_when_the_plane_is_moved(matrix):
    moved = RING.warp(matrix)
    assert RING.area().item() == 84
    assert moved.area().item() == pytest.approx(84 * abs(torch.linalg.det(matrix).item()), rel=1e-5)
    assert moved.rasterise(1, 1, 1).sum() <= 1
    centred = moved.warp(translation(*(20 - moved.bounds()[0].view(2, 2).mean(0)).tolist()))
    assert not centred.rasterise(40, 40)[0, 19:21, 19:21].any()
    assert centred.rasterise(40, 40).sum().item() == pytest.approx(moved.area().item(), rel=0.1)


def test_parts_run_as_they_should_however_they_are_given():
    backwards = Polygons.from_parts([[SQUARE[::-1]]], holes=[[[(3, 3), (7, 3), (7, 7), (3, 7)]]])
    assert backwards.area().item() == RING.area().item() == 84
    flat = Polygons.from_parts([[[0, 0, 10, 0, 10, 10, 0, 10]]])
    assert flat.area().item() == 100


def test_overlapping_parts_are_a_union():
    two = Polygons.from_parts([[SQUARE, [(5, 5), (15, 5), (15, 15), (5, 15)]]])
    assert two.rasterise(20, 20).sum() == 175


def share_by_cells(polygons: Polygons, stride: float, width: int) -> tuple[float, float]:
    """Filled area, and the share of it left of x = `width`, by fine cells of a frame of 100 pixels."""
    cells = polygons.rasterise(round(100 / stride), round(100 / stride), stride)[0]
    return cells.sum().item() * stride**2, cells[:, : round(width / stride)].sum().item() / max(cells.sum().item(), 1)


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("name", [*CROSSING, *PLAIN])
def test_areas_are_what_is_filled_however_rings_cross(name, turn):
    ring = {**CROSSING, **PLAIN}[name]
    polygons = Polygons.from_rings([[np.array(ring[::-1] if turn else ring)], [np.array(SQUARE)]])
    filled, left = share_by_cells(polygons, 0.125, 42)
    assert filled > 1000
    assert polygons.area().tolist() == pytest.approx([filled, 100], rel=0.02)
    assert polygons.visible(100, 100).tolist() == [1, 1]
    assert polygons.visible(100, 42).tolist() == pytest.approx([left, 1], abs=0.01)
    assert 0.1 < left < 0.9


def test_overlapping_parts_count_once_and_what_fills_nothing_is_not_seen():
    other = [(5, 5), (15, 5), (15, 15), (5, 15)]
    there_and_back = [(3.1, 4.3), (8.7, 9.9), (3.1, 4.3)]
    polygons = Polygons.from_parts([[SQUARE, other], [there_and_back], []])
    assert polygons.area().tolist() == pytest.approx([175, 0, 0], rel=0.01)
    assert polygons.visible(20, 20).tolist() == [1, 0, 0]
    assert polygons.visible(20, 5).tolist() == pytest.approx([50 / 175, 0, 0], rel=0.01)


@settings(max_examples=80, deadline=None)
@given(st.lists(RINGS, min_size=1, max_size=3))
def test_the_visible_share_is_that_of_the_filled_cells(rings):
    whole = Polygons.from_rings([[np.array(ring) for ring in rings]]).warp(translation(12, 12)).warp(scaling(3, 3))  # within 0 to 100
    filled, left = share_by_cells(whole, 0.25, 42)
    if filled > 400:
        assert whole.visible(100, 42).item() == pytest.approx(left, abs=0.06)
    assert whole.area().item() == pytest.approx(filled, rel=0.08, abs=60)


def test_joining_keeps_every_ring():
    joined = Polygons.cat([RING, Polygons.from_parts([[], [SQUARE, [(20, 20), (22, 20), (21, 24)]]]), Polygons.empty()])
    assert joined.area().tolist() == [84, 0, 104]
    assert [len(joined.parts(i)) for i in range(3)] == [2, 0, 2]


def test_indexing_keeps_every_ring():
    polygons = Polygons.cat([RING, Polygons.from_parts([[SQUARE], []])])
    assert polygons[torch.tensor([2, 1, 0, 0])].area().tolist() == [0, 100, 84, 84]
    assert polygons[torch.tensor([False, True, False])].area().tolist() == [100]
    assert polygons[1:].area().tolist() == [100, 0]
    assert len(polygons[torch.zeros(0, dtype=torch.int64)]) == 0


def test_nothing_passes_through_everything():
    none = Polygons.empty().warp(scaling(-1, 1)).clip(10, 10)
    assert none.bounds().shape == (0, 4)
    assert none.rasterise(4, 4).shape == (0, 4, 4)
    assert none.visible(5, 5).shape == none.area().shape == (0,)
    blank = Polygons.from_masks([np.zeros((3, 3), bool)]).warp(rotation(1.0))
    assert blank.area().tolist() == [0]
    assert not blank.rasterise(3, 3).any()


def test_coco_segmentations():
    """An object without a hole as its own outline, one with a hole as a code; both fill what the polygons fill."""
    polygons = Polygons.cat([RING, Polygons.from_parts([[SQUARE, [(12, 2), (15.5, 2.25), (14, 7.125)]], []])])
    ring, outline, nothing = polygons.coco(20, 30)
    assert outline == [[0, 0, 10, 0, 10, 10, 0, 10], [12, 2, 15.5, 2.25, 14, 7.125]]
    assert Polygons.from_rle([ring, nothing]).area().tolist() == [84, 0]
    assert coco_mask.area(coco_mask.merge(coco_mask.frPyObjects(outline, 20, 30))) >= 100


@settings(max_examples=60, deadline=None)
@given(MASKS)
def test_outlines_of_masks_are_filled_alike_by_the_coco_tools(mask):
    """So a code that was read may be written as an outline."""
    polygons = Polygons.from_masks([mask])
    (written,) = polygons.coco(*mask.shape)
    if isinstance(written, list):
        filled = Rle.from_coco(coco_mask.merge(coco_mask.frPyObjects(written, *mask.shape)))
    else:
        filled = Rle.from_coco(written)
    assert (filled.decode()[0].numpy() == mask).all()


@pytest.mark.parametrize("name", CROSSING)
def test_rings_that_cross_or_overlap_themselves_are_written_as_codes(name):
    (code,) = Polygons.from_rings([[np.array(CROSSING[name])]]).coco(100, 100)
    filled = Polygons.from_rings([[np.array(CROSSING[name])]]).rasterise(100, 100)
    assert torch.equal(Rle.from_coco(code).decode(), filled)
    by_tools = coco_mask.area(coco_mask.merge(coco_mask.frPyObjects([np.array(CROSSING[name]).reshape(-1).tolist()], 100, 100)))
    if name != "bow-tie":  # of which both rules fill the same
        assert by_tools < 0.92 * filled.sum()


@pytest.mark.parametrize("name", PLAIN)
def test_rings_that_do_not_are_written_as_outlines(name):
    polygons = Polygons.from_rings([[np.array(PLAIN[name]), np.array(SQUARE)]])
    assert [len(part) for part in polygons.coco(100, 100)[0]] == [2 * len(PLAIN[name]), 8]


@settings(max_examples=100, deadline=None)
@given(st.lists(RINGS, min_size=1, max_size=3))
def test_what_is_written_as_outlines_is_filled_alike_by_even_and_odd(rings):
    polygons = Polygons.from_rings([[np.array(ring) for ring in rings]])
    (written,) = polygons.coco(7, 9)
    clear = oracle(polygons, 7, 9, 1)[1][0]
    if isinstance(written, list):
        windings = [np.zeros((7, 9))]
        y, x = np.mgrid[:7, :9] + 0.5
        for part in polygons.parts(0):
            z = part.astype(float) @ (1, 1j) - (x + 1j * y)[..., None]
            windings.append((np.angle(np.roll(z, -1, -1) / z).sum(-1) / (2 * math.pi)).round() % 2)
        filled = np.any(windings, 0)
    else:
        filled = Rle.from_coco(written).decode()[0].numpy()
    assert ((filled == polygons.rasterise(7, 9)[0].numpy()) | ~clear).all()

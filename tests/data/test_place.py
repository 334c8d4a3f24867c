"""The rules by which objects are placed on their image: turned, cut, checked; of every kind."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pellucid.data.columns import Ragged, decode_rings
from pellucid.data.findings import Log
from pellucid.data.images import Header
from pellucid.data.readers.place import Canvas, Drawn, bounds, is_flat, ring_area, turn_of, upright
from pellucid.geometry.keypoints import KeypointSpec
from pellucid.geometry.polygons import Polygons

from .make import codes

SIZE = (40, 60)  # height, width
SPEC = KeypointSpec.make(3, 3, ["nose", "left_ear", "right_ear"])
KINDS = ("polygons", "keypoints", "corners", "area")


def ring(*points):
    return np.array(points, np.float64)


SQUARE = ring((10, 10), (20, 10), (20, 20), (10, 20))
NOSE = ring((12, 12, 2), (14, 14, 1), (0, 0, 0))


def moved(points, dx, dy):
    return points + np.array((dx, dy))


def place(drawn, columns=KINDS):
    log = Log()
    placed = Canvas(SIZE, log, columns, SPEC).place(drawn, "file:1")
    return placed, codes(log.findings())


def rings_of(placed):
    row = placed[1]["polygons"]
    points, starts, _ = decode_rings(Ragged(row, np.array([0, len(row)])))
    return np.split(points, starts[1:-1])


def test_an_object_inside_is_kept_as_it_is():
    placed, found = place(Drawn((10, 10, 20, 20), [SQUARE], points=NOSE, corners=SQUARE, area=77.0))
    assert placed[0] == (10, 10, 20, 20)
    assert np.array_equal(rings_of(placed)[0], SQUARE)
    assert placed[1]["keypoints"].tolist() == NOSE.reshape(-1).tolist()
    assert placed[1]["corners"].tolist() == SQUARE.reshape(-1).tolist()
    assert placed[1]["area"] == (77,)
    assert found == {}


@pytest.mark.parametrize(("drawn", "code"), [
    (Drawn(), "object-without-polygon"),
    (Drawn((1, 1, 9, 9)), "object-without-polygon"),
    (Drawn(rings=[SQUARE[:2]]), "degenerate"),
    (Drawn(rings=[ring((1, 1), (5, 5), (9, 9))]), "degenerate"),  # a line on the slant
    (Drawn(rings=[ring((1, 1), (1, 1), (1, 1))]), "degenerate"),
    (Drawn(rings=[moved(SQUARE, 100, 0)]), "outside"),
    (Drawn(rings=[SQUARE - (0, 20)]), "outside"),
    (Drawn(rings=[np.where(SQUARE == 20, np.nan, SQUARE)]), "row-number"),
    (Drawn(rings=[np.where(SQUARE == 20, np.inf, SQUARE)]), "row-number"),
    (Drawn(rings=[np.where(SQUARE == 20, 1e308, SQUARE)]), "row-number"),
])  # fmt: skip
def test_polygons_that_cannot_be_used(drawn, code):
    placed, found = place(drawn, ("polygons",))
    assert placed is None
    assert found == {code: 1}
    if code != "object-without-polygon":
        assert place(drawn, ()) == (None, found)  # as little use to a task about boxes


def test_a_polygon_over_the_edge_is_cut_exactly_and_its_box_too():
    triangle = ring((-20, 10), (20, 10), (20, 30))
    placed, found = place(Drawn((-20, 10, 20, 30), [triangle]), ("polygons", "area"))
    assert found == {"clipped": 1}
    assert placed[0] == (0, 10, 20, 30)
    assert sum(map(ring_area, rings_of(placed))) == pytest.approx(400 - 20 * 10 / 2)
    assert placed[1]["area"][0] == pytest.approx(300)
    by_rounding, found = place(Drawn(rings=[SQUARE - (10.4, 0)]), ("polygons",))
    assert found == {}
    assert by_rounding[0] == (0, 10, 9.6, 20)


def test_a_polygon_cut_in_two_stays_one_object():
    comb = ring((10, 30), (50, 30), (50, -20), (40, -20), (40, 10), (40, -5), (20, -5), (20, -20), (10, -20))
    placed, found = place(Drawn(rings=[comb]), ("polygons",))
    assert found == {"clipped": 1}
    shape = Polygons.from_rings([rings_of(placed)])
    assert shape.bounds()[0].tolist() == [10, 0, 50, 30]
    assert shape.rasterise(*SIZE).sum() == Polygons.from_rings([[comb]]).rasterise(*SIZE).sum()


def test_parts_without_area_go_and_the_object_stays():
    placed, found = place(Drawn(rings=[SQUARE, SQUARE[:2], ring((1, 1), (2, 2), (3, 3))]), ("polygons",))
    assert found == {"part-flat": 2}
    assert len(rings_of(placed)) == 1


def test_every_outer_ring_runs_the_same_way_and_holes_the_other():
    backwards = (SQUARE + 5)[::-1]
    assert ring_area(SQUARE) > 0 > ring_area(backwards)
    placed, _ = place(Drawn(rings=[SQUARE, backwards]), ("polygons",))
    assert [ring_area(part) > 0 for part in rings_of(placed)] == [True, True]
    filled = Polygons.from_rings([rings_of(placed)]).rasterise(*SIZE)
    assert filled.sum() == 100 + 100 - 25  # the union: where parts overlap, nothing cancels
    hole = ring((12, 12), (12, 18), (18, 18), (18, 12))
    for rings in ([SQUARE, hole], [SQUARE[::-1], hole[::-1]]):
        placed, _ = place(Drawn(rings=rings, traced=True), ("polygons", "area"))
        assert [ring_area(part) for part in rings_of(placed)] == [100, -36]
        assert placed[1]["area"] == (64,)


def test_a_ring_that_crosses_itself_has_area():
    bow = ring((10, 10), (20, 20), (20, 10), (10, 20))
    assert ring_area(bow) == 0
    assert not is_flat(bow)
    assert place(Drawn(rings=[bow]), ("polygons",))[0] is not None


@pytest.mark.parametrize("box", [(5, 5, 5, 9), (5, 5, 9, 5), (70, 5, 80, 9), (5, np.nan, 9, 9)])
def test_a_polygon_stands_in_for_a_useless_box(box):
    placed, found = place(Drawn(box, [SQUARE]), ("polygons",))
    assert placed[0] == (10, 10, 20, 20)
    assert found == {"box-replaced": 1}
    none, found = place(Drawn(box, [SQUARE]), ())  # the task is about boxes: what the file says counts
    assert none is None
    assert sum(found.values()) == 1


def test_a_region_to_be_ignored_is_as_large_as_its_box():
    placed, found = place(Drawn((10, 10, 30, 20), ignore=True), ("polygons",))
    assert bounds(rings_of(placed)) == (10, 10, 30, 20)
    assert found == {}


@pytest.mark.parametrize(("points", "expected", "found"), [
    ([(12, 12, 2), (-3, 14, 2), (50, 41, 1)], [(12, 12, 2), (0, 0, 0), (0, 0, 0)], {"point-outside": 2}),
    ([(-0.4, 12, 2), (60.3, 40.2, 1), (0, 0, 0)], [(0, 12, 2), (60, 40, 1), (0, 0, 0)], {}),
    ([(12, 12, 3), (13, 13, 0.7), (14, 14, -1)], [(12, 12, 2), (13, 13, 2), (0, 0, 0)], {"visibility": 3}),
    ([(np.nan, np.inf, 0), (1e300, 2, 0), (5, 5, 2)], [(0, 0, 0), (0, 0, 0), (5, 5, 2)], {}),
    ([(9, 9, 0), (8, 8, 0), (7, 7, 0)], [(0, 0, 0)] * 3, {"points-none": 1}),
    ([(99, 9, 2), (8, 98, 2), (7, 7, 0)], [(0, 0, 0)] * 3, {"point-outside": 2, "points-none": 1}),
    (None, [(0, 0, 0)] * 3, {"points-none": 1}),
])  # fmt: skip
def test_keypoints(points, expected, found):
    points = None if points is None else np.array(points, np.float64)
    placed, codes_found = place(Drawn((5, 5, 30, 30), points=points), ("keypoints",))
    assert placed[1]["keypoints"].reshape(3, 3).tolist() == [list(map(float, point)) for point in expected]
    assert codes_found == found


@pytest.mark.parametrize("point", [(np.nan, 5, 2), (5, np.inf, 1), (5, 5, np.nan)])
def test_a_labelled_point_that_is_no_number_takes_its_object_along(point):
    placed, found = place(Drawn((5, 5, 30, 30), points=np.array([point, (6, 6, 2), (7, 7, 2)])), ("keypoints",))
    assert placed is None
    assert found == {"row-number": 1}


TILTED = ring((20, 10), (30, 20), (25, 25), (15, 15))


@pytest.mark.parametrize(("corners", "found"), [
    (TILTED, {}),
    (TILTED[[2, 3, 0, 1]], {}),
    (TILTED[::-1], {}),
    (moved(TILTED, 0.2, 0), {}),
    (TILTED * [1, 1.9], {"not-rectangle": 1}),
    (TILTED[[0, 2, 1, 3]], {"not-rectangle": 1}),  # corners out of order
    (TILTED - (18, 12), {}),  # half outside: never cut
    (TILTED - (100, 0), {"outside": 1}),
    (TILTED * [1, 0], {"degenerate": 1}),
    (np.array([[1, 1], [2, 2], [3, 3], [4, 4]]), {"degenerate": 1}),
    (TILTED * [np.nan, 1], {"row-number": 1}),
    (TILTED - [[0, 0], [0, 0], [0, 0], [1e6, 0]], {"object-far": 1}),
    (None, {"object-without-corners": 1}),
])  # fmt: skip
def test_rotated_boxes(corners, found):
    placed, codes_found = place(Drawn(corners=corners), ("corners",))
    assert codes_found == found
    used = not found or "not-rectangle" in found
    assert (placed is not None) == used
    if used:
        assert placed[1]["corners"].reshape(4, 2).tolist() == corners.tolist()
        x1, y1, x2, y2 = bounds([corners])
        assert placed[0] == (max(x1, 0), max(y1, 0), min(x2, 60), min(y2, 40))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_what_was_drawn_on_the_stored_pixels_turns_with_them(orientation):
    """Every kind lands where Pillow puts the pixels."""
    methods = {5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}
    turned = orientation >= 5
    stored = np.zeros((60, 40) if turned else (40, 60), np.uint8)
    stored[6:26, 4:12] = 1  # x 4..12, y 6..26
    shown = Image.fromarray(stored)
    if turned:
        shown = shown.transpose(Image.Transpose[methods[orientation]])
    ys, xs = np.nonzero(np.asarray(shown))
    expected = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
    corners = ring((4, 6), (12, 6), (12, 26), (4, 26))
    header = Header(*SIZE, orientation)
    log = Log()
    turn = turn_of(stored.shape if turned else SIZE, header, log, "x")
    assert codes(log.findings()) == ({"exif-frame": 1} if turned else {})
    points = ring((4.5, 6.5, 2), (11.5, 6.5, 1), (0, 0, 0))
    drawn = Drawn((4, 6, 12, 26), [corners], points=points, corners=corners)
    box, columns = Canvas(SIZE, log, KINDS, SPEC, turn).place(drawn, "x")
    assert box == expected
    assert bounds(rings_of((box, columns))) == expected
    assert ring_area(rings_of((box, columns))[0]) == 160  # still outer
    assert bounds([columns["corners"].reshape(4, 2)]) == expected
    stored[:] = 0
    stored[6, 4] = 2
    shown = Image.fromarray(stored)
    shown = shown.transpose(Image.Transpose[methods[orientation]]) if turned else shown
    y, x = np.argwhere(np.asarray(shown) == 2)[0]
    seen = columns["keypoints"].reshape(3, 3)
    assert seen[0].tolist() == [x + 0.5, y + 0.5, 2]
    mirrored = orientation in (5, 7)  # left and right change places in a mirror
    assert seen[1 if not mirrored else 2, 2] == 1
    assert not seen[2 if not mirrored else 1].any()


def test_four_quarter_turns_are_none():
    drawn = Drawn((4, 6, 12, 26), [SQUARE], points=NOSE, corners=SQUARE)
    size, turned = (40, 60), drawn
    for turn in (6, 6, 6, 6):
        turned = upright(turned, size, turn, SPEC)
        size = size[::-1]
    assert turned.box == drawn.box
    assert np.array_equal(turned.rings[0], SQUARE)
    assert np.array_equal(turned.points[:, :2][:2], NOSE[:2, :2])


NUMBERS = st.sampled_from([0.0, -1.0, 10.0, 25.5, 39.0, 61.0, 1e6, -1e300, float("nan"), float("inf")])
RING = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6).map(lambda points: np.array(points, np.float64).reshape(-1, 2))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(RING, max_size=3),
    st.lists(NUMBERS, min_size=4, max_size=4) | st.none(),
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=3, max_size=3),
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=4, max_size=4),
    st.sampled_from([("polygons", "area"), ("keypoints",), ("corners",), ()]),
    st.integers(1, 8),
)
def test_whatever_comes_is_on_the_image_or_a_finding(rings, box, points, corners, columns, turn):
    log = Log()
    drawn = Drawn(box, rings, False, np.array(points), np.array(corners))
    placed = Canvas(SIZE, log, columns, SPEC, turn).place(drawn, "x")
    if placed is None:
        assert sum(Counter(codes(log.findings())).values()) == 1
        return
    (x1, y1, x2, y2), row = placed
    assert 0 <= x1 < x2 <= 60
    assert 0 <= y1 < y2 <= 40
    if "polygons" in row:
        whole = np.concatenate(rings_of(placed))
        assert whole.min() >= 0
        assert (whole.max(0) <= (60, 40)).all()
        assert row["area"][0] >= 0
    if "keypoints" in row:
        seen = row["keypoints"].reshape(3, 3)
        assert np.isin(seen[:, 2], (0, 1, 2)).all()
        assert (seen[:, :2] >= 0).all()
        assert (seen[:, :2] <= (60, 40)).all()
        assert not seen[seen[:, 2] == 0].any()
    if "corners" in row:
        assert np.isfinite(row["corners"]).all()

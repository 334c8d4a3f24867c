"""Rotated boxes against shapely, periodicity, and the borders of float32."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.geometry.affine import about, compose, rotation, scaling, translation
from pellucid.geometry.rboxes import (
    RBoxes,
    canonical,
    pairwise_rbox_iou,
    probiou,
    rbox_bounds,
    rbox_corners,
    rbox_intersection,
    rbox_iou,
)
from pellucid.geometry.suppress import box_nms
from pellucid.geometry.suppress_rotated import rotated_nms

PI = math.pi
side = st.floats(0.5, 200)
rbox = st.tuples(st.floats(-100, 300), st.floats(-100, 300), side, side, st.floats(-10, 10))


def random_rboxes(count: int, seed: int, dtype=torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rand = torch.rand(count, 5, generator=generator, dtype=torch.float64)
    return (rand * torch.tensor([60, 60, 40, 20, 4 * PI]) + torch.tensor([0, 0, 1, 1, -2 * PI])).to(dtype)


def polygon(values):
    from shapely.geometry import Polygon  # an oracle that a machine for GPU tests need not have

    return Polygon(rbox_corners(torch.as_tensor(values, dtype=torch.float64)).tolist())


def same_rectangle(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    """Equal as sets of corners."""
    distance = torch.cdist(rbox_corners(a.double()), rbox_corners(b.double()))
    return bool(distance.amin(-1).amax() <= tolerance)


@given(rbox)
@settings(deadline=None)
def test_canonical_form_is_the_same_rectangle(values):
    given_ = torch.tensor([values], dtype=torch.float64)
    made = canonical(given_)
    _, _, w, h, theta = made[0].tolist()
    assert w >= h
    assert -PI / 4 <= theta < (PI / 4 if w == h else 3 * PI / 4)
    assert same_rectangle(given_, made, 1e-9 * (1 + w))
    assert torch.equal(canonical(made), made)


def test_equal_rectangles_have_one_form():
    base = torch.tensor([50.0, 40, 30, 10, 0.3])
    swapped = torch.tensor([50.0, 40, 10, 30, 0.3 - PI / 2])
    for turns in (-3, -1, 0, 1, 2):
        shift = torch.tensor([0, 0, 0, 0, turns * PI])
        torch.testing.assert_close(canonical(base + shift), base, atol=1e-5, rtol=0)
        torch.testing.assert_close(canonical(swapped + shift), base, atol=1e-5, rtol=0)
    square = torch.tensor([50.0, 40, 10, 10, 0.3])
    for quarters in (-3, 1, 2):
        torch.testing.assert_close(canonical(square + torch.tensor([0, 0, 0, 0, quarters * PI / 2])), square, atol=1e-5, rtol=0)


@pytest.mark.parametrize("theta", [-PI / 4, 3 * PI / 4, math.nextafter(-PI / 4, -1), math.nextafter(3 * PI / 4, 0), 7 * PI / 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ends_of_the_range_are_half_open(theta, dtype):
    made = canonical(torch.tensor([[0, 0, 4, 2, theta]], dtype=dtype))[0, 4]
    assert -PI / 4 - 1e-7 <= made.item() < torch.tensor(3 * PI / 4, dtype=dtype).item()


@given(rbox, rbox)
@settings(deadline=None, max_examples=300)
def test_intersection_equals_shapely(first, second):
    from shapely import intersection

    a, b = (torch.tensor(values, dtype=torch.float64) for values in (first, second))
    expected = intersection(polygon(first), polygon(second), grid_size=1e-9).area  # without a grid GEOS fails on nearly equal edges
    found = rbox_intersection(a, b).item()
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-5)
    assert rbox_intersection(b, a).item() == pytest.approx(found, rel=1e-9, abs=1e-7)


def test_pairwise_iou_equals_shapely_and_float32_is_near():
    a, b = random_rboxes(40, 1), random_rboxes(30, 2)
    shared = torch.tensor([[polygon(p).intersection(polygon(q)).area for q in b] for p in a], dtype=torch.float64)
    area_a, area_b = (torch.tensor([polygon(p).area for p in part], dtype=torch.float64) for part in (a, b))
    expected = shared / (area_a[:, None] + area_b - shared)
    assert (expected > 0.3).sum() > 10
    torch.testing.assert_close(pairwise_rbox_iou(a, b), expected, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(pairwise_rbox_iou(a.float(), b.float()), expected.float(), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(pairwise_rbox_iou(a, b, of_first=True), shared / area_a[:, None], atol=1e-9, rtol=1e-9)


def test_pairs_are_looked_at_in_chunks(monkeypatch):
    a, b = random_rboxes(23, 3), random_rboxes(17, 4)
    whole = pairwise_rbox_iou(a, b)
    monkeypatch.setattr("pellucid.geometry.rboxes.PAIRS", 20)
    assert torch.equal(pairwise_rbox_iou(a, b), whole)
    assert pairwise_rbox_iou(a[:0], b).shape == (0, 17)
    assert pairwise_rbox_iou(a, b[:0]).shape == (23, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_iou_with_itself_with_what_it_holds_and_with_nothing(dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    boxes = random_rboxes(100, 5, dtype)
    torch.testing.assert_close(rbox_iou(boxes, boxes), torch.ones(100, dtype=dtype), atol=tolerance, rtol=0)
    turned = boxes + torch.tensor([0, 0, 0, 0, PI], dtype=dtype)
    torch.testing.assert_close(rbox_iou(boxes, turned), torch.ones(100, dtype=dtype), atol=2 * tolerance, rtol=0)
    inner = boxes * torch.tensor([1, 1, 0.5, 0.5, 1], dtype=dtype)
    torch.testing.assert_close(rbox_iou(boxes, inner), torch.full((100,), 0.25, dtype=dtype), atol=tolerance, rtol=0)
    flat = boxes * torch.tensor([1, 1, 1, 0, 1], dtype=dtype)
    inverted = boxes * torch.tensor([1, 1, -1, 1, 1], dtype=dtype)
    assert rbox_iou(boxes, flat).abs().max() == 0
    assert rbox_iou(boxes, inverted).abs().max() == 0
    assert rbox_iou(inverted, boxes).abs().max() == 0


def test_touching_boxes_share_nothing():
    a = torch.tensor([10.0, 10, 8, 4, 0])
    assert rbox_iou(a, torch.tensor([18.0, 10, 8, 4, 0])) == 0
    assert rbox_iou(a, torch.tensor([10.0, 14, 8, 4, 0])) == 0


@given(rbox)
@settings(deadline=None)
def test_visible_share_equals_shapely(values):
    from shapely import box, intersection

    shape, frame = polygon(values), box(0, 0, 180, 120)
    share = RBoxes(torch.tensor([values], dtype=torch.float64)).visible(120, 180).item()
    assert share == pytest.approx(intersection(shape, frame, grid_size=1e-9).area / shape.area, abs=1e-6)


def test_clipping_changes_nothing_and_a_matrix_moves_the_whole_box():
    """A rectangle of 30 degrees half outside keeps its sides and its angle."""
    turned = RBoxes(torch.tensor([[0.0, 50, 60, 20, PI / 6]]))
    assert turned.clip(100, 100).data is turned.data
    assert turned.visible(100, 100).item() == pytest.approx(0.5, abs=1e-6)
    moved = turned.warp(compose(translation(5, -3), about(50, 50, rotation(0.2)), scaling(2, 2)))
    assert moved.data[0, 2:].tolist() == pytest.approx([120, 40, PI / 6 + 0.2], abs=1e-5)


@given(rbox, st.floats(-4, 4), st.floats(0.2, 3), st.booleans())
@settings(deadline=None)
def test_similarities_and_mirrors_move_the_corners(values, angle, scale, mirror):
    matrix = compose(translation(7, -30), rotation(angle), scaling(scale * (-1) ** mirror, scale))
    made = RBoxes(torch.tensor([values], dtype=torch.float64))
    corners = made.corners() @ matrix[:2, :2].T + matrix[:2, 2]
    distance = torch.cdist(made.warp(matrix).corners(), corners)
    assert distance.amin(-1).max() < 1e-7
    assert torch.equal(canonical(made.warp(matrix).data), made.warp(matrix).data)


def test_other_matrices_keep_area_and_centre_and_come_back():
    """A letterbox scales both axes by nearly the same; there and back must not let boxes grow."""
    boxes = RBoxes(canonical(random_rboxes(50, 6)))
    matrix = scaling(0.5, 0.501)
    moved = boxes.warp(matrix)
    torch.testing.assert_close(moved.data[:, 2] * moved.data[:, 3], boxes.data[:, 2] * boxes.data[:, 3] * 0.5 * 0.501)
    back = moved.warp(torch.linalg.inv(matrix))
    torch.testing.assert_close(back.data[:, :2], boxes.data[:, :2])
    assert torch.cdist(back.corners(), boxes.corners()).amin(-1).max() < 0.05


@given(rbox, st.permutations(range(4)))
@settings(deadline=None)
def test_corners_in_any_order_give_the_box_back(values, order):
    made = torch.tensor([values], dtype=torch.float64)
    found = RBoxes.from_corners(rbox_corners(made)[:, list(order)])
    assert same_rectangle(found.data, made, 1e-6 * (1 + made[0, 2:4].max().item()))


def test_four_points_get_the_least_rectangle_around_them():
    from shapely.geometry import MultiPoint

    points = torch.rand(200, 4, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64) * 50
    found = RBoxes.from_corners(points)
    expected = torch.tensor([MultiPoint(p.tolist()).minimum_rotated_rectangle.area for p in points], dtype=torch.float64)
    torch.testing.assert_close(found.data[:, 2] * found.data[:, 3], expected, rtol=1e-9, atol=1e-9)
    assert all(polygon(b).buffer(1e-6).contains(MultiPoint(p.tolist())) for b, p in zip(found.data, points, strict=True))


def test_degenerate_corners_give_flat_boxes():
    same = torch.full((1, 4, 2), 5.0)
    line = torch.tensor([[[0.0, 0], [3, 4], [6, 8], [3, 4]]])
    assert RBoxes.from_corners(same).data[0, :4].tolist() == [5, 5, 0, 0]
    assert RBoxes.from_corners(line).data[0].tolist() == pytest.approx([3, 4, 10, 0, math.atan2(4, 3)], abs=1e-6)


def test_bounds_hold_the_corners_tightly():
    boxes = random_rboxes(50, 8)
    corners = rbox_corners(boxes)
    torch.testing.assert_close(rbox_bounds(boxes), torch.cat((corners.amin(1), corners.amax(1)), -1))
    inverted = torch.tensor([[5.0, 6, -3, 4, 0.3]])
    assert rbox_bounds(inverted).tolist() == [[5, 6, 5, 6]]


def by_definition(a: torch.Tensor, b: torch.Tensor, floor: float) -> torch.Tensor:
    """ProbIoU from covariance matrices in float64, without the small constants."""

    def covariance(box: torch.Tensor) -> torch.Tensor:
        c, s = box[4].cos(), box[4].sin()
        turn = torch.stack((torch.stack((c, -s)), torch.stack((s, c))))
        return turn @ torch.diag(box[2:4] ** 2 / 12 + floor) @ turn.T

    first, second = covariance(a), covariance(b)
    mean = (first + second) / 2
    offset = a[:2] - b[:2]
    distance = offset @ torch.linalg.inv(mean) @ offset / 8
    distance = distance + 0.5 * torch.log(torch.det(mean) / (torch.det(first) * torch.det(second)).sqrt())
    return 1 - (1 - torch.exp(-distance)).sqrt()


@pytest.mark.parametrize("floor", [0.0, 0.01])
def test_probiou_by_definition(floor):
    a, b = random_rboxes(200, 9), random_rboxes(200, 10)
    expected = torch.stack([by_definition(p, q, floor) for p, q in zip(a, b, strict=True)])
    assert (expected > 0.1).sum() > 10
    torch.testing.assert_close(probiou(a, b, floor), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(probiou(a.float(), b.float(), floor), expected.float(), atol=1e-5, rtol=1e-4)


def test_probiou_of_equal_rectangles_is_one_in_every_form():
    """Also of a needle of 0.001 x 1000, where float32 has no digit to lose, and of a turned square."""
    forms = [(0, 0, 0), (0, 0, PI), (0, 0, -PI)]
    needle = torch.tensor([400.0, 300, 1e3, 1e-3, 0.7])
    for box_ in (needle, torch.tensor([50.0, 40, 30, 10, -1.5])):
        assert probiou(box_, box_).item() > 1 - 1e-3
    plain = torch.tensor([50.0, 40, 30, 10, 0.3])
    for _, _, turn in forms:
        assert probiou(plain, plain + torch.tensor([0, 0, 0, 0, turn])).item() > 1 - 1e-3
    assert probiou(plain, torch.tensor([50.0, 40, 10, 30, 0.3 + PI / 2])).item() > 1 - 1e-3
    square = torch.tensor([50.0, 40, 20, 20, 0.0])
    assert all(probiou(square, square + torch.tensor([0, 0, 0, 0, turn])).item() > 1 - 1e-3 for turn in (0.1, 0.5, 1.0, 2.0))


@pytest.mark.parametrize("sides", [(1e-3, 1e3), (1e-3, 1e-3), (1e4, 1e4), (0.0, 0.0), (-3.0, 5.0)])
def test_probiou_has_finite_gradients(sides):
    predicted = torch.tensor([20.0, 20, *sides, 0.4], requires_grad=True)
    for truth in (torch.tensor([20.0, 20, *sides, 0.4]), torch.tensor([25.0, 18, 30, 10, -0.3]), torch.zeros(5), torch.full((5,), 1e4)):
        for floor in (0.0, 0.01):
            value = probiou(predicted, truth, floor)
            (gradient,) = torch.autograd.grad(value, predicted)
            assert 0 - 1e-6 <= value.item() <= 1
            assert torch.isfinite(gradient).all()


def test_probiou_gradient_by_gradcheck():
    a, b = random_rboxes(10, 11).requires_grad_(), random_rboxes(10, 12)
    assert torch.autograd.gradcheck(lambda x: probiou(x, b, 0.01), (a,))


def brute_nms(rboxes, scores, groups, iou):
    kept = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        clear = all(groups[i] != groups[j] or rbox_iou(rboxes[i].double(), rboxes[j].double()) <= iou for j in kept)
        kept += [i] if clear else []
    return kept


@pytest.mark.parametrize("count", [0, 1, 150])
@pytest.mark.parametrize("block", [8, 512])
def test_suppression_equals_the_slow_one(count, block, monkeypatch):
    monkeypatch.setattr("pellucid.geometry.suppress_rotated.BLOCK", block)
    rboxes = random_rboxes(count, 13, torch.float32)
    generator = torch.Generator().manual_seed(14)
    scores = (torch.rand(count, generator=generator) * 20).round() / 20  # ties
    groups = torch.randint(0, 3, (count,), generator=generator)
    for iou in (0.2, 0.6):
        kept = rotated_nms({"rboxes": rboxes}, scores, groups, iou).tolist()
        assert kept == brute_nms(rboxes, scores, groups, iou)
        assert count < 2 or 10 < len(kept) < count


def test_suppression_of_upright_boxes_is_that_of_boxes():
    rboxes = random_rboxes(200, 15, torch.float32)
    rboxes[:, 4] = 0
    scores = torch.rand(200, generator=torch.Generator().manual_seed(16)).sort(descending=True).values
    groups = torch.arange(200) % 2
    plain = box_nms({"boxes": rbox_bounds(rboxes)}, scores, groups, 0.5)
    assert torch.equal(rotated_nms({"rboxes": rboxes}, scores, groups, 0.5), plain)
    assert len(plain) < 190

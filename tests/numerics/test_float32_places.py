"""What is computed in float32 whatever surrounds it: overlaps, areas, the assigner's metric, sigma; under autocast, and of half inputs."""

import math

import pytest
import torch

from pellucid.assign.aligned import align
from pellucid.assign.points import anchor_points
from pellucid.geometry.boxes import box_area, box_ciou, box_iou, pairwise_iou
from pellucid.geometry.keypoints import oks
from pellucid.geometry.rboxes import probiou
from pellucid.losses.keypoints import residual_nll
from pellucid.models.flow import RealNVP
from pellucid.tasks import TASKS
from pellucid.types import Dense
from tests.contracts.test_task import SIZE, targets

HALVES = [torch.float16, torch.bfloat16]
A = torch.tensor([[0.0, 0, 1024, 768], [8, 16, 640, 512], [512, 256, 520, 1024], [300, 300, 200, 200]])  # areas above 65,504; one inverted
B = torch.tensor([[16.0, 8, 1000, 700], [0, 0, 1024, 1024], [500, 200, 540, 900], [100, 100, 400, 400]])
R = torch.tensor([[512.0, 384, 1024, 640, 0.5], [100, 100, 300, 4, 1.25], [64, 64, 2, 2, 0], [20, 30, 0, -3, 2]])
S = torch.tensor([[500.0, 400, 900, 600, 0.75], [104, 96, 256, 4, 1.5], [64, 66, 2, 2, 0.25], [20, 30, 10, 10, 0]])
NEAR = torch.tensor([[[300.0, 300, 2], [10, 900, 1]]])
K = 0.1, 0.1
OVERLAPS = {
    "area": (box_area, A),
    "iou": (box_iou, A, B),
    "pairwise iou": (pairwise_iou, A, B),
    "ciou": (box_ciou, A, B),
    "probiou": (probiou, R, S),
    "probiou in strides": (lambda a, b: probiou(a, b, 0.01), R, S),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", OVERLAPS)
def test_overlaps_under_autocast_are_those_without(name, dtype):
    """Values and gradients, bit for bit, the backward pass inside autocast too."""
    function, *given = OVERLAPS[name]
    results = []
    for enabled in (False, True):
        inputs = [part.clone().requires_grad_() for part in given]
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            value = function(*inputs)
            value.sum().backward()
        results.append([value, *(part.grad for part in inputs)])
    assert results[0][0].dtype == torch.float32
    assert all(torch.isfinite(part).all() for part in results[0])
    assert results[0][1].abs().max() > 0
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", OVERLAPS)
def test_overlaps_of_half_inputs_are_computed_in_float32(name, dtype):
    function, *given = OVERLAPS[name]
    half = [part.to(dtype) for part in given]
    assert torch.equal(function(*half), function(*(part.float() for part in half)))
    assert torch.isfinite(function(*half)).all()
    assert function(*(part.double() for part in given)).dtype == torch.float64


def test_the_areas_pass_the_range_of_float16():
    """So the plain formula in float16 would not do."""
    w, h = (A.half()[..., 2:] - A.half()[..., :2]).unbind(-1)
    assert torch.isinf(w * h).sum() == 2
    assert box_area(A).max() > torch.finfo(torch.float16).max


def test_inverted_boxes_overlap_nothing():
    assert box_area(A)[3] == 0
    assert box_iou(A, B)[3] == 0
    assert box_iou(A[3], A[3]) == 0
    assert pairwise_iou(A[3:], B).tolist() == [[0] * 4]


def test_the_aspect_of_flat_boxes_is_an_angle():
    """Sides of 0 have an angle by atan2, and finite gradients."""
    flat = torch.tensor([[0.0, 0, 1000, 0], [0, 0, 0, 1000], [5, 5, 5, 5]], requires_grad=True)
    value = box_ciou(flat, torch.tensor([10.0, 10, 40, 30]))
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(flat.grad).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_the_similarity_of_points_keeps_float32(dtype):
    """Squared distances of 640 px pass 65,504 and 2 k^2 area is larger still."""
    inputs = NEAR + torch.tensor([640.0, 0, 0]), NEAR, torch.tensor([4e5]), torch.tensor(K)
    with torch.autocast("cpu", dtype=dtype):
        value = oks(*inputs)
    assert torch.equal(value, oks(*inputs))
    assert 0 < value < 1


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_assigners_metric_is_float32(name, dtype):
    """Half outputs under autocast are assigned as the same numbers in float32 are; u^6 of 0.1 is nothing in float16."""
    task, taught = TASKS[name](), targets(TASKS[name]())
    points, strides = anchor_points([(16, 16), (8, 8), (4, 4)], (8, 16, 32), torch.device("cpu"))
    draw = torch.Generator().manual_seed(0)
    sizes = {"cls": 3} | {output: channels for stem in task.stems for output, channels in stem.outputs.items()}
    raw = {output: torch.randn(2, len(points), channels, generator=draw).to(dtype) for output, channels in sizes.items()}
    raw["box"] = (raw["box"] / 4 + 2).to(dtype)
    shared = {"proto": torch.randn(2, 32, SIZE // 4, SIZE // 4, generator=draw).to(dtype)}
    chosen = []
    for convert, enabled in ((lambda t: t, True), (torch.Tensor.float, False)):
        outputs = {output: convert(value) for output, value in raw.items()}
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            shapes = task.shapes(outputs, points, strides)
            near = {part: convert(value) for part, value in shared.items()}
            chosen.append(align(Dense(outputs, points, strides), shapes, near, taught, task.overlap, 10))
        assert all(value.dtype == torch.float32 for value in shapes.values())
    assert chosen[0].valid.sum() > 4
    assert chosen[0].weight.max() > 0
    assert chosen[0].weight.dtype == torch.float32
    assert all(torch.equal(getattr(chosen[0], part), getattr(chosen[1], part)) for part in ("anchor", "object", "weight", "valid"))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("raw", [-25.0, -11.0, 0.0, 11.0])
def test_the_logarithm_of_sigma_is_float32(dtype, raw):
    """sigmoid(-25) is 0 in float16, its logarithm would be infinite."""
    flow = {name: torch.zeros_like(value) for name, value in RealNVP()(()).items()}
    parts = [torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), torch.full((1, 1, 2), raw)]
    seen = torch.ones(1, 1, dtype=torch.bool)
    plain = residual_nll(*parts, seen, flow)
    with torch.autocast("cpu", dtype=dtype):
        value = residual_nll(*(part.to(dtype) for part in parts), seen, flow)
    expected = 4 * torch.tensor(raw, dtype=torch.float64).sigmoid().log().item() + 2 * math.log(2) + 2 * math.log(2 * math.pi)
    assert torch.equal(value, plain)
    assert value.item() == pytest.approx(expected, rel=1e-5)

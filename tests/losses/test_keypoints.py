"""Losses of keypoints: against plain formulas, at the ends of their ranges, in half precision."""

import math

import pytest
import torch
from torch.distributions import Laplace, Normal

from pellucid.losses import keypoints
from pellucid.losses.keypoints import LEAST_SIGMA, LIMIT, by_labelled_point, oks_loss, residual_nll, rle_loss, visibility_loss
from pellucid.models import flow as flows
from pellucid.models.flow import RealNVP, log_density
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion
from pellucid.types import Dense, Output, Pairs, Targets

K = 5
JOINTS = (1.0, 1.5, 1.0, 1.2, 1.0)


@pytest.fixture
def flow() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    net = RealNVP()
    with torch.no_grad():
        for pair in zip(net.scale, net.shift, strict=True):
            for part in pair:
                part[-1].weight.mul_(30)
    return net(())


def pairs(flow, n: int = 6, seed: int = 0) -> Pairs:
    """Two images of n pairs; the last of each image is an empty slot, the first has no labelled point."""
    draw = torch.Generator().manual_seed(seed)
    boxes = torch.tensor([[10.0, 12, 60, 55], [70, 30, 120, 120]])[torch.arange(n) % 2].repeat(2, 1, 1)
    place = boxes[..., None, :2] + torch.rand(2, n, K, 2, generator=draw) * (boxes[..., None, 2:] - boxes[..., None, :2])
    seen = torch.randint(0, 3, (2, n, K, 1), generator=draw).float()
    seen[:, 0], seen[:, 1] = 0, 2
    anchors, strides = (boxes[..., :2] + boxes[..., 2:]) / 2, torch.tensor([8.0, 16]).repeat(2, n // 2)
    raw = torch.randn(2, n, K, 3, generator=draw)
    raw[..., :2] += (place - anchors[..., None, :]) / strides[..., None, None]
    outputs = {"points": raw.flatten(2).requires_grad_(), "sigma": torch.randn(2, n, 2 * K, generator=draw).requires_grad_()}
    shapes = TASKS["pose"](points=K).shapes({**outputs, "box": torch.zeros(2, n, 4)}, anchors, strides)
    valid = torch.ones(2, n, dtype=torch.bool)
    valid[:, -1] = False
    truth = {"boxes": boxes, "keypoints": torch.cat((place, seen), -1)}
    return Pairs(outputs, shapes, truth, flow, torch.zeros(2, n, dtype=torch.int64), anchors, strides, valid.float(), valid, (128, 128))


def without_labels(given: Pairs) -> torch.Tensor:
    return given.truth["keypoints"][..., 2] == 0


def test_oks_loss_is_its_formula(flow):
    given = pairs(flow)
    found, truth, sigmas = given.shapes["keypoints"], given.truth["keypoints"], (0.1, 0.05, 0.2, 0.1, 0.07)
    w, h = (given.truth["boxes"][..., 2:] - given.truth["boxes"][..., :2]).unbind(-1)
    d = (found[..., :2] - truth[..., :2]).square().sum(-1)
    near = torch.exp(-d / (2 * (2 * torch.tensor(sigmas)) ** 2 * (w * h)[..., None]))
    seen = (truth[..., 2] > 0).float()
    expected = ((1 - near) * seen).sum(-1) / seen.sum(-1)
    ours = oks_loss(given, sigmas)
    assert expected[:, 1:].min() > 0.01
    torch.testing.assert_close(ours[:, 1:], expected[:, 1:])
    assert ours[:, 0].tolist() == [0, 0]


def test_visibility_loss_is_bce(flow):
    given = pairs(flow)
    logits = given.outputs["points"].unflatten(-1, (K, 3))[..., 2]
    seen = given.truth["keypoints"][..., 2] > 0
    expected = -torch.where(seen, logits.sigmoid(), (-logits).sigmoid()).log().mean(-1)
    torch.testing.assert_close(visibility_loss(given), expected)


@pytest.mark.parametrize("form", ["double", "single"])
def test_likelihood_is_made_of_known_densities(flow, form):
    """Once: -log Q - log phi + log sigma (arXiv 2107.11291, Eq. 8); twice: as arXiv 2606.03748 prints it, summed over x and y."""
    draw = torch.Generator().manual_seed(3)
    found, truth, raw = (torch.randn(7, K, 2, generator=draw) for _ in range(3))
    sigma = raw.sigmoid()
    e = (found - truth) / sigma
    phi = log_density(e, flow)
    laplace = Laplace(truth, sigma).log_prob(found).sum(-1)
    once = -laplace - phi
    expected = once if form == "single" else once + sigma.log().sum(-1) - phi
    ours = residual_nll(found, truth, raw, torch.ones(7, K, dtype=torch.bool), flow, form)
    assert e.abs().max() < LIMIT
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_a_flow_of_zeros_is_the_normal_density():
    flow = {name: torch.zeros_like(value) for name, value in RealNVP()(()).items()}
    found, raw = torch.full((1, 1, 2), 0.3), torch.zeros(1, 1, 2)
    ours = residual_nll(found, torch.zeros_like(found), raw, torch.ones(1, 1, dtype=torch.bool), flow, "single")
    expected = 2 * (math.log(2 * 0.5) + 0.6) - 2 * Normal(0, 1).log_prob(torch.tensor(0.6))
    assert ours.item() == pytest.approx(expected.item(), rel=1e-6)


def test_pairs_and_points_are_weighed_as_stated(flow):
    given = pairs(flow)
    seen = given.truth["keypoints"][..., 2] > 0
    assert torch.equal(by_labelled_point(given), seen.sum(-1) * given.valid)
    raw = given.outputs["points"].unflatten(-1, (K, 3))[..., :2]
    there = (given.truth["keypoints"][..., :2] - given.points[..., None, :]) / given.strides[..., None, None]
    nll = residual_nll(raw, there, given.outputs["sigma"].unflatten(-1, (K, 2)), seen, flow)
    whole = (rle_loss(given, JOINTS) * by_labelled_point(given)).sum()
    torch.testing.assert_close(whole, (nll * torch.tensor(JOINTS) * seen * given.valid[..., None]).sum())


def test_absent_points_may_hold_anything(flow):
    """The same losses and gradients, bit for bit, whatever stands at points that are not labelled."""
    results = []
    for held in (0.0, float("nan"), float("inf"), -1e30):
        given = pairs(flow)
        given.truth["keypoints"][..., :2][without_labels(given)] = held
        total = (oks_loss(given, (0.1,) * K) + rle_loss(given, JOINTS) + visibility_loss(given)).sum()
        total.backward()
        results.append((total.detach(), given.outputs["points"].grad, given.outputs["sigma"].grad))
    assert without_labels(given).sum() > 10
    assert all(torch.isfinite(part).all() for part in results[0])
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


def test_absent_points_teach_their_visibility_alone(flow):
    given = pairs(flow)
    (oks_loss(given, (0.1,) * K) + rle_loss(given, JOINTS)).sum().backward()
    gradient = given.outputs["points"].grad.unflatten(-1, (K, 3))
    assert (gradient[without_labels(given)] == 0).all()
    assert (gradient[~without_labels(given)][:, :2] != 0).any(1).all()
    assert (given.outputs["sigma"].grad.unflatten(-1, (K, 2))[without_labels(given)] == 0).all()


def test_a_residual_beyond_the_limit_moves_sigma_only_through_its_logarithm(flow):
    found = torch.tensor([[[500.0, 0.1]]], requires_grad=True)
    raw = torch.zeros(1, 1, 2, requires_grad=True)
    residual_nll(found, torch.zeros(1, 1, 2), raw, torch.ones(1, 1, dtype=torch.bool), flow).sum().backward()
    assert found.grad[0, 0, 0] == 0
    assert found.grad[0, 0, 1] != 0
    assert raw.grad[0, 0, 0] == pytest.approx(2 * 0.5)  # d (2 log sigmoid) at 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("residual", [1.1e5, 8e5])
@pytest.mark.parametrize("limit", [LIMIT, math.inf])
def test_the_density_is_an_island(flow, dtype, residual, limit):
    """Residuals of ordinary training pass the range of float16: the whole density is finite, with or without the limit."""
    parts = [torch.tensor([[[residual, -residual]]]), torch.zeros(1, 1, 2), torch.tensor([[[-3.0, 2.0]]])]
    seen = torch.ones(1, 1, dtype=torch.bool)
    plain = residual_nll(*parts, seen, flow, limit=limit)
    with torch.autocast("cpu", dtype=dtype):
        inside = [part.clone().requires_grad_() for part in parts]
        assert (inside[0] @ torch.ones(2, 1)).dtype == dtype
        value = residual_nll(*inside, seen, flow, limit=limit)
        value.sum().backward()
    assert residual > torch.finfo(torch.float16).max
    assert torch.equal(value, plain)
    assert all(torch.isfinite(part.grad).all() for part in inside)
    assert value.dtype == torch.float32


def test_half_precision_outputs_are_scored_in_float32(flow):
    given = pairs(flow)
    half = Pairs(**{**vars(given), "outputs": {name: value.detach().bfloat16() for name, value in given.outputs.items()}})
    rounded = Pairs(**{**vars(given), "outputs": {name: value.float() for name, value in half.outputs.items()}})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(rle_loss(half, JOINTS), rle_loss(rounded, JOINTS))
    assert rle_loss(half, JOINTS).dtype == torch.float32


@pytest.mark.parametrize("form", ["double", "single"])
@pytest.mark.parametrize("least", [0.0, LEAST_SIGMA])
def test_gradients_pass_gradcheck_in_float64(flow, form, least):
    draw = torch.Generator().manual_seed(5)
    found, truth, raw = (torch.randn(2, K, 2, generator=draw, dtype=torch.float64) for _ in range(3))
    seen = torch.rand(2, K, generator=draw) < 0.7
    whole = {name: value.double() for name, value in flow.items()}
    inputs = (found.requires_grad_(), raw.requires_grad_())
    assert residual_nll(found, truth, raw, seen, whole, form, least).dtype == torch.float64
    assert torch.autograd.gradcheck(lambda f, r: residual_nll(f, truth, r, seen, whole, form, least), inputs)


@pytest.mark.parametrize("raw", [-40.0, -88.0, -104.0, -6e4, 6e4])
def test_a_dead_sigma_keeps_gradients_finite(flow, raw):
    parts = [torch.tensor([[[0.3, 0.0]]]), torch.zeros(1, 1, 2), torch.full((1, 1, 2), raw)]
    parts = [part.requires_grad_() for part in parts]
    value = residual_nll(*parts, torch.ones(1, 1, dtype=torch.bool), flow)
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert all(torch.isfinite(part.grad).all() for part in parts)


def branch_of(raw_sigma: float, **told) -> tuple[Output, Targets, Criterion]:
    """Predictions on the spot with a sigma so small that the likelihood's loss is negative."""
    torch.manual_seed(0)
    task = TASKS["pose"](points=K, **told)
    truth = torch.tensor([[[[20.0, 20, 2], [30, 20, 2], [20, 40, 2], [40, 40, 2], [30, 30, 2]]]])
    boxes = torch.tensor([[[10.0, 10, 50, 50]]])
    points, strides = torch.tensor([[28.0, 28], [36.0, 36]]), torch.tensor([8.0, 8])
    place = (truth[..., :2] - points[None, :, None]) / 8
    outputs = {
        "cls": torch.zeros(1, 2, 1),
        "box": torch.full((1, 2, 4), 2.0),
        "points": torch.cat((place + 0.001, torch.zeros(1, 2, K, 1)), -1).flatten(2),
        "sigma": torch.full((1, 2, 2 * K), raw_sigma),
    }
    dense = Dense({name: value.requires_grad_() for name, value in outputs.items()}, points, strides)
    targets = Targets(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool), boxes, {"keypoints": truth})
    return Output(dense, dense, RealNVP()(()), (64, 64)), targets, Criterion(task)


def test_the_default_loss_stops_at_0_and_teaches_nothing_there():
    output, targets, criterion = branch_of(-6.0)
    many, _ = criterion(output, targets)
    assert many.sums["rle"] < 0
    loss = many.means()["rle"]
    assert loss == 0
    assert torch.autograd.grad(loss, output.many.outputs["sigma"])[0].abs().max() == 0


def test_a_floor_of_sigma_keeps_the_gradient_where_the_loss_is_negative():
    """The scale has a floor, so the loss has one; below 0 it teaches on."""
    output, targets, criterion = branch_of(-6.0, rle_floor="sigma")
    many, _ = criterion(output, targets)
    loss = many.means()["rle"]
    assert loss < 0
    for name in ("sigma", "points"):
        assert torch.autograd.grad(loss, output.many.outputs[name], retain_graph=True)[0].abs().max() > 1e-4
    lowest = branch_of(-1e4, rle_floor="sigma")
    bottom = lowest[2](lowest[0], lowest[1])[0].means()["rle"]
    assert 2 * 2 * math.log(LEAST_SIGMA) - 2 < bottom < loss


def test_arms_of_one_loss():
    likelihood = {term.name for term in TASKS["pose"](pose=0).terms}
    similarity = TASKS["pose"](rle=0)
    assert likelihood == {"box", "l1", "kobj", "rle"}
    assert {term.name for term in similarity.terms} == {"box", "l1", "pose", "kobj"}
    assert not similarity.shared
    assert "sigma" not in similarity.stems[1].outputs
    assert "kobj" not in {term.name for term in TASKS["pose"](points=4, dims=2).terms}


def density(flow, draw=0, n=9):
    """Arguments of `residual_nll` in float32, leaves, with residuals of ordinary training; some points are not labelled."""
    g = torch.Generator().manual_seed(draw)
    found, truth, raw = (torch.randn(2, n, K, 2, generator=g) * scale for scale in (5.0, 5.0, 1.0))
    flow = {name: value.detach().requires_grad_() for name, value in flow.items()}
    return found.requires_grad_(), truth, raw.requires_grad_(), torch.rand(2, n, K, generator=g) < 0.8, flow


def scored(given, dtype=None, inside=False):
    """Value and every gradient, flow's too; forward under autocast to `dtype`, backward inside of it or not."""
    found, truth, raw, seen, flow = given
    leaves = [found, raw, *flow.values()]
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        nll = residual_nll(found, truth, raw, seen, flow)
        if inside:
            return [nll, *torch.autograd.grad(nll.sum(), leaves)]
    return [nll, *torch.autograd.grad(nll.sum(), leaves)]


def same(first, second):
    assert all(part.abs().max() > 0 for part in first)
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_island_is_the_plain_formula_bit_for_bit(flow, monkeypatch):
    """In float32: the value, the gradients of points and sigma, and of all six parameters of the flow."""
    given = density(flow)
    ours = scored(given)
    for module in (keypoints, flows):
        monkeypatch.setattr(module, "island", lambda function, *tensors: function(*tensors))
    assert len(ours) == 9
    assert same(ours, scored(given))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_backward_inside_autocast_is_backward_outside(flow, dtype, monkeypatch):
    """And autocast changes nothing at all; a density whose parts are no islands would differ."""
    given = density(flow)
    outside = scored(given, dtype)
    assert same(outside, scored(given, dtype, inside=True))
    assert same(outside, scored(given))
    for module in (keypoints, flows):
        monkeypatch.setattr(module, "island", lambda function, *tensors: function(*tensors))
    assert not same(outside, scored(given, dtype, inside=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gradients_have_the_dtypes_of_the_inputs(flow, dtype):
    found, truth, raw, seen, flow = density(flow)
    found, raw = (part.detach().to(dtype).requires_grad_() for part in (found, raw))
    value, *gradients = scored((found, truth, raw, seen, flow), torch.bfloat16, inside=True)
    assert value.dtype == (dtype if dtype == torch.float64 else torch.float32)
    assert [gradient.dtype for gradient in gradients] == [dtype, dtype, *[torch.float32] * 6]


def test_the_flows_parameters_pass_gradcheck_in_float64(flow):
    found, truth, raw, seen, flow = density(flow, n=1)
    names = ["flow0.bias", "flow4.weight", "flow4.bias"]
    whole = {name: value.detach().double() for name, value in flow.items()}
    leaves = [whole[name][:1].clone().requires_grad_() for name in names]

    def value(*parts):
        changed = {name: torch.cat((part, whole[name][1:])) for name, part in zip(names, parts, strict=True)}
        return residual_nll(found.detach().double() / 5, truth.double() / 5, raw.detach().double(), seen, whole | changed)

    assert torch.autograd.gradcheck(value, leaves)


def test_both_branches_in_one_pass_score_as_each_alone(flow):
    """Paired: values and gradients, up to the order of sums in a matrix product."""
    many, one = pairs(flow, n=6), pairs(flow, n=4, seed=1)

    def cat(name):
        first, second = getattr(many, name), getattr(one, name)
        if not isinstance(first, dict):
            return torch.cat((first, second), 1)
        return {key: torch.cat((first[key], second[key]), 1) for key in first}

    both = Pairs(**{**vars(many), **{name: cat(name) for name in ("outputs", "truth", "points", "strides", "object", "weight", "valid")}})
    leaves = [part.outputs[name] for part in (many, one) for name in ("points", "sigma")]
    together, apart = rle_loss(both, JOINTS), torch.cat((rle_loss(many, JOINTS), rle_loss(one, JOINTS)), 1)
    assert together.shape == (2, 10)
    torch.testing.assert_close(together, apart, rtol=1e-6, atol=1e-6)
    for a, b in zip(torch.autograd.grad(together.sum(), leaves), torch.autograd.grad(apart.sum(), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)

"""The normalising flow: a density that can be trusted, and counts of the pose model that carries it."""

import json
import math
from pathlib import Path

import pytest
import torch

from pellucid.models.build import build
from pellucid.models.count import count_flops, count_parameters
from pellucid.models.flow import COUPLINGS, FLOW_OUTPUTS, RealNVP, apply, log_density, undo
from pellucid.tasks import TASKS

COUNTS = json.loads((Path(__file__).parent / "counts.json").read_text())


@pytest.fixture
def flow() -> RealNVP:
    """A flow far from the normal density, in float64."""
    torch.manual_seed(0)
    net = RealNVP().double()
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.split(".")[2] == "4":
                value.copy_(torch.randn_like(value) * 0.3)
    return net


def points(n: int = 50) -> torch.Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2


def test_it_has_the_published_number_of_parameters():
    assert sum(p.numel() for p in RealNVP().parameters()) == 53_784


def test_it_hands_on_its_parameters_stacked(flow):
    given = flow(())
    assert set(given) == set(FLOW_OUTPUTS)
    assert given["flow0.weight"].shape == (6, 2, 64, 2)
    assert torch.equal(given["flow2.bias"][3, 1], flow.shift[3][2].bias)
    assert torch.equal(given["flow4.weight"][5, 0], flow.scale[5][4].weight)
    assert not flow.keep(frozenset(FLOW_OUTPUTS))
    assert flow.keep(frozenset())


def test_density_is_that_of_the_nets_with_masks(flow):
    """objective.md's own words: keep = b z; z <- keep + (1 - b)(z - t) exp(-s), couplings last to first."""
    z = points()
    total = torch.zeros(len(z), dtype=torch.float64)
    for i in reversed(range(COUPLINGS)):
        b = torch.tensor([[0.0, 1], [1, 0]], dtype=torch.float64)[i % 2]
        keep = b * z
        s, t = flow.scale[i](keep).tanh() * (1 - b), flow.shift[i](keep) * (1 - b)
        z = keep + (1 - b) * (z - t) * torch.exp(-s)
        total -= s.sum(-1)
    expected = torch.distributions.Normal(0, 1).log_prob(z).sum(-1) + total
    ours = log_density(points(), flow(()))
    assert expected.std() > 1
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_inverse_and_log_determinant_against_autograd(flow):
    given, x = flow(()), points(8)
    z, log_det = undo(x, given)
    torch.testing.assert_close(apply(z, given), x)
    assert (z - x).abs().min(0).values.max() > 1e-3
    for i in range(8):
        jacobian = torch.autograd.functional.jacobian(lambda z: apply(z, given), z[i])
        assert jacobian.det().log().item() == pytest.approx(log_det[i].item(), rel=1e-9)


def test_density_adds_up_to_one(flow):
    side = torch.linspace(-25, 25, 251, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1)
    with torch.no_grad():
        total = log_density(grid, flow(())).exp().sum() * (side[1] - side[0]) ** 2
    assert total.item() == pytest.approx(1, abs=5e-3)


def test_a_new_flow_is_nearly_normal():
    torch.manual_seed(0)
    x = points().float()
    normal = -0.5 * x.square().sum(-1) - math.log(2 * math.pi)
    assert (log_density(x, RealNVP()(())) - normal).abs().max() < 0.1


def test_gradients_pass_gradcheck(flow):
    names = list(FLOW_OUTPUTS)
    given = [flow(())[name].detach().requires_grad_() for name in names]
    x = points(3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *w: log_density(x, dict(zip(names, w, strict=True))), (x, *given), fast_mode=True)


def test_branches_may_be_scored_alone_or_together(flow):
    first, second, given = points(30), points(20) + 1, flow(())
    both = log_density(torch.cat((first, second)), given)
    torch.testing.assert_close(both, torch.cat((log_density(first, given), log_density(second, given))), rtol=1e-13, atol=1e-13)


def test_hidden_activations_are_not_kept(flow):
    net, x = flow.float(), torch.randn(2000, 2).requires_grad_()
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        total = log_density(x, net(())).sum()
    total.backward()
    hidden = len(x) * 2 * 64 * 4 * COUPLINGS  # of two nets with two layers, before and after SiLU
    assert 0 < sum(kept) < hidden / 20
    assert all(p.grad.abs().max() > 0 for p in net.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_reaches_neither_the_density_nor_its_backward_pass(flow, dtype):
    """A captured graph records the backward pass inside autocast, eager training runs it outside: both give the same bits."""
    net = flow.float()
    x = (points().float() * 3e4).requires_grad_()
    plain = log_density(x, net(()))
    gradient = torch.autograd.grad(plain.sum(), (x, *net.parameters()))
    with torch.autocast("cpu", dtype=dtype):
        inside = log_density(x, net(()))
        again = torch.autograd.grad(inside.sum(), (x, *net.parameters()))
    assert torch.equal(inside, plain)
    assert all(torch.equal(a, b) for a, b in zip(gradient, again, strict=True))
    assert x.abs().max() > 65_504
    assert all(torch.isfinite(part).all() for part in (plain, *gradient))


def fused(scale: str, nc: int, **told):
    task = TASKS["pose"](**told)
    with torch.device("meta"):
        return build(scale, nc, task.stems, task.shared, task.training_only).fuse()


@pytest.mark.parametrize("scale", "nsmlx")
def test_published_counts_of_pose(scale):
    stated = COUNTS["pose_nc1_k17_640"][scale]
    model = fused(scale, 1)
    assert count_parameters(model) == stated["fused_o2o"]
    assert count_flops(model, 640) == pytest.approx(stated["gflops"], abs=0.006)


@pytest.mark.parametrize("rle", [1.0, 0.0])
def test_published_counts_of_other_points(rle):
    model = fused("n", 14, points=4, dims=2, rle=rle)
    assert count_parameters(model) == COUNTS["other"]["pose_n_nc14_k4_d2_fused_o2o"]

"""Averaging, schedule, flat gradients and loss scale."""

import math

import pytest
import torch
from torch import nn

from pellucid.optim.ema import Ema
from pellucid.optim.gradients import FlatGradients
from pellucid.optim.scaler import LossScale
from pellucid.optim.schedule import Schedule, branch_share


def test_ema_follows_its_formula():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    ema = Ema(model, decay=0.99, ramp=3.0)
    expected = model[0].weight.detach().clone()
    for n in range(1, 5):
        with torch.no_grad():
            model[0].weight.add_(1.0)
            model[1].running_mean.add_(1.0)
        model[1].num_batches_tracked.add_(1)
        ema.update(model)
        d = 0.99 * (1 - math.exp(-n / 3.0))
        expected = d * expected + (1 - d) * model[0].weight.detach()
    torch.testing.assert_close(ema.model[0].weight, expected)
    assert 0 < ema.model[1].running_mean[0] < 4
    assert ema.model[1].num_batches_tracked == 4
    assert not ema.model.training


def test_schedule():
    s = Schedule(steps=100, warmup=10, final=0.1)
    assert s.rate(0) == pytest.approx(1 / 11)
    assert s.rate(0, start=10.0) == pytest.approx(10 + (1 - 10) / 11)
    assert s.rate(50) == pytest.approx(1 - 0.9 * 0.5)
    assert s.rate(100) == pytest.approx(0.1)
    assert all(s.rate(i) > s.rate(i + 1) for i in range(10, 99))
    assert s.momentum_at(0) < s.momentum_at(9) < s.momentum_at(10) == 0.937


def test_branch_share_is_the_papers():
    assert branch_share(0, 101) == pytest.approx(0.8)
    assert branch_share(50, 101) == pytest.approx(0.45)
    assert branch_share(100, 101) == pytest.approx(0.1)
    assert branch_share(0, 1) == pytest.approx(0.8)


@pytest.fixture
def params():
    params = [nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(4))]
    for p in params:
        p.grad = torch.full_like(p, 3.0)
    return params


def test_gradients_accumulate_and_clip(params):
    gradients = FlatGradients(params)
    gradients.collect()
    assert all(p.grad is None for p in params)
    params[1].grad = torch.full_like(params[1], 1.0)
    gradients.collect()
    whole = torch.cat((torch.full((6,), 3.0), torch.full((4,), 4.0))) / 2
    norm, found_inf = gradients.finish(clip=1.0, scale=torch.tensor(2.0))
    assert found_inf == 0
    torch.testing.assert_close(norm, whole.norm())
    torch.testing.assert_close(torch.cat([p.grad.flatten() for p in params]), whole / whole.norm())
    gradients.release()
    assert gradients.flat.vector.abs().sum() == 0


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_an_infinity_empties_the_gradient(params, bad):
    params[0].grad[1, 1] = bad
    gradients = FlatGradients(params)
    gradients.collect()
    _, found_inf = gradients.finish(clip=10.0, scale=torch.tensor(1.0))
    assert found_inf == 1
    assert all(p.grad.abs().sum() == 0 for p in params)


def test_loss_scale_halves_and_grows():
    scale = LossScale("cpu", enabled=True, start=1024.0, interval=3)
    one, zero = torch.ones(()), torch.zeros(())
    scale.update(one)
    assert scale.scale == 512
    for _ in range(3):
        scale.update(zero)
    assert scale.scale == 1024
    off = LossScale("cpu", enabled=False)
    off.update(one)
    assert off.scale == 1

"""Float16 training: the first steps of every task at the start value of the loss scale, and what bounds their gradients."""

import pytest
import torch

from pellucid.config import TrainConfig
from pellucid.data.collate import targets
from pellucid.losses.keypoints import STEEPEST, residual_nll
from pellucid.models.flow import RealNVP
from pellucid.optim.scaler import LossScale
from pellucid.tasks import TASKS
from pellucid.train.step import TrainStep
from pellucid.types import Batch, ImageMeta
from pellucid.zoo import Card, create
from tests.contracts.test_task import objects

START = LossScale("cpu", enabled=True).scale.item()
SIZE, STEPS = 128, 6


def largest_gradients(step, batch):
    """Of the loss of a mean image, by step: the largest gradient of any layer's weights in any part that float16 computes."""
    found = []
    for _ in range(STEPS):
        step.forward(batch).backward()
        half = [p.grad for name, p in step.detector.named_parameters() if p.grad is not None and not name.startswith("shared.flow")]
        found.append(max(gradient.abs().max().item() for gradient in half) / (step.factor.item() * len(batch)))
        step.collect()
        step.prepare()
        step.updater.optimizer.step()
        step.conclude()
    return found


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_first_steps_are_not_skipped(name):
    """With room: overflow would take a scale at least twice the start value."""
    card = Card(name, "n", ("a", "b", "c"), (0, 1, 2))
    config = TrainConfig(model=f"{name}-n", data="none", batch=2, accumulate=1)
    step = TrainStep(create(card, 0), TASKS[name](), config, card.nc, "16", 100)
    images = torch.randint(0, 256, (2, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    task = step.criterion.task
    batch = Batch(images, targets([objects(task)] * 2, SIZE, task.targets), tuple(ImageMeta(i, i, "", SIZE, SIZE) for i in range(2)))
    largest = largest_gradients(step, batch)
    print(f"{name}: largest {max(largest):.1f}, overflow at scale {torch.finfo(torch.float16).max / max(largest):.0f}")
    assert step.skipped == 0
    assert step.scaler.scale == START >= 128
    assert 0 < max(largest) < torch.finfo(torch.float16).max / (2 * START)


def slopes(dtype, found, raw, form="double", least=0.0):
    """Gradients of one coordinate's density by the prediction and by raw sigma."""
    parts = [torch.tensor([[[value, 0.0]]]).to(dtype).requires_grad_() for value in (found, raw)]
    nll = residual_nll(parts[0], torch.zeros(1, 1, 2), parts[1], torch.ones(1, 1, dtype=torch.bool), FLOW, form, least)
    return nll.item(), *(gradient[0, 0, 0].item() for gradient in torch.autograd.grad(nll.sum(), parts))


FLOW = {name: torch.zeros_like(value) for name, value in RealNVP()(()).items()}  # the normal density


@pytest.mark.parametrize("form", ["double", "single"])
@pytest.mark.parametrize(("found", "raw"), [(4.0, -3.0), (0.05, -6.0), (30.0, 0.0), (45.0, 0.5)])
def test_slopes_are_cut_where_gradients_are_float16(form, found, raw):
    """The same value and signs; without the cut a single point would pass STEEPEST."""
    full, half = slopes(torch.float32, found, raw, form), slopes(torch.float16, found, raw, form)
    assert half[0] == pytest.approx(full[0], rel=2e-3)
    assert max(map(abs, full[1:])) > STEEPEST
    for steep, cut in zip(full[1:], half[1:], strict=True):
        assert abs(cut) <= 1.01 * STEEPEST
        assert abs(cut) == pytest.approx(min(abs(steep), STEEPEST), rel=0.02)
        assert cut * steep >= 0


def test_gentle_slopes_are_as_they_were():
    for found, raw in ((0.5, 0.0), (1.5, 0.5), (-2.0, 1.0), (500.0, 0.0)):  # the last one is beyond the limit of the residual
        full, half = slopes(torch.float32, found, raw), slopes(torch.float16, found, raw)
        assert half[1:] == pytest.approx(full[1:], rel=2e-3)
        assert slopes(torch.bfloat16, found, raw)[1:] == pytest.approx(full[1:], rel=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_keep_their_slopes(dtype):
    assert abs(slopes(dtype, 4.0, -3.0)[1]) > 10 * STEEPEST


def test_a_floor_of_sigma_bounds_the_slope_by_the_prediction():
    """What `rle_floor=sigma` does: at most (1 + 2 e) / 0.05, and sigma's own slope dies as it nears the floor."""
    free, floored = slopes(torch.float32, 0.05, -6.0), slopes(torch.float32, 0.05, -6.0, least=0.05)
    assert abs(free[1]) > 1e4
    assert abs(floored[1]) < 100
    assert abs(floored[2]) < 0.3 < 10 < abs(free[2])

"""A training step reads no value on the host, from the batch to the averaged weights: nothing called makes a device wait."""

import pytest
import torch

from pellucid.config import TrainConfig
from pellucid.data.collate import targets
from pellucid.tasks import TASKS
from pellucid.train.step import TrainStep
from pellucid.types import Batch, ImageMeta
from pellucid.zoo import Card, create

from .test_task import SIZE, objects

READS = {"item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "_unique2", "bincount", "histc"}


def reads(function) -> list[str]:
    """Operators called that make a device wait, seen by the profiler, which (unlike a dispatch mode) leaves every code path as it is."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    called = {event.key.removeprefix("aten::") for event in profile.key_averages() if event.key.startswith("aten::")}
    assert called
    return sorted(called & READS)


def make_step(task: str, precision: str) -> tuple[TrainStep, Batch]:
    card = Card(task, "n", ("a", "b", "c"), (0, 1, 2))
    config = TrainConfig(model=f"{task}-n", data="none", batch=2, accumulate=2, optimizer="musgd")
    step = TrainStep(create(card, 0), TASKS[task](), config, card.nc, precision, 100)
    images = torch.zeros(2, 3, SIZE, SIZE, dtype=torch.uint8)
    taught = targets([objects(step.criterion.task)] * 2, SIZE, step.criterion.task.targets)
    return step, Batch(images, taught, tuple(ImageMeta(i, i, "", SIZE, SIZE) for i in range(2)))


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_step_reads_nothing_on_the_host(task, precision):
    """With our own optimizer; torch's fused AdamW reads its rate on a CPU, but not on a GPU, where tests/gpu looks at it."""
    step, batch = make_step(task, precision)

    def whole() -> None:
        for _ in range(2):
            step.forward(batch).backward()
            step.collect()
        step.prepare()
        step.updater.optimizer.step()
        step.conclude()

    assert reads(whole) == []
    assert step.losses()["box"] > 0
    assert step.updater.steps == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).all()),
        lambda x: x[x > 0.5],
        lambda x: x.prod(-1).sum().backward(),
        lambda x: (x > 0).nonzero(),
    ],
)
def test_a_read_would_be_caught(read):
    x = torch.ones(4, 2, requires_grad=True)
    assert reads(lambda: read(x))

"""The noise floor of every task on a CPU, and what it catches: an island left open in its backward pass, a rate that does not move."""

from functools import partial

import pytest
import torch

from pellucid.config import TrainConfig
from pellucid.data.collate import targets
from pellucid.models.attention import attention_weights
from pellucid.numerics import islands
from pellucid.numerics.noise import Noise, Observed, Yardstick, measure
from pellucid.tasks import TASKS
from pellucid.train.criterion import combine
from pellucid.train.floor import noisy, steps_of, yardstick
from pellucid.train.step import TrainStep
from pellucid.types import Batch, Dense, ImageMeta, Output
from pellucid.zoo import Card, create
from tests.contracts.test_task import objects

SIZE = 128
DRAWS = 3  # enough to see orders of magnitude; tests/gpu makes the claim with 20


def make(name, precision, optimizer="musgd", device="cpu"):
    card = Card(name, "n", ("a", "b", "c"), (0, 1, 2))
    config = TrainConfig(model=f"{name}-n", data="none", batch=2, accumulate=1, epochs=4, optimizer=optimizer)
    return TrainStep(create(card, 0).to(device), TASKS[name](), config, card.nc, precision, 8)


def batch_of(name, seed=0):
    """Two random pictures with two objects each."""
    task = TASKS[name]()
    images = torch.randint(0, 256, (2, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return Batch(images, targets([objects(task)] * 2, SIZE, task.targets), tuple(ImageMeta(i, i, "", SIZE, SIZE) for i in range(2)))


def inside_autocast(step, loss):
    """As a graph that was captured with its backward pass inside the caller's autocast state."""
    with step.autocast():
        loss.backward()


class Leaky(islands._Island):
    """An island whose backward pass runs in whatever arithmetic surrounds it."""

    @staticmethod
    def backward(ctx, *gradients):
        tensors = [t.detach().requires_grad_(needed) for t, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)]
        with torch.enable_grad():
            wanted = [tensor for tensor in tensors if tensor.requires_grad]
            found = iter(torch.autograd.grad(ctx.function(*tensors), wanted, gradients, allow_unused=True))
        return (None, *(next(found) if tensor.requires_grad else None for tensor in tensors))


@pytest.mark.parametrize(("name", "precision"), [*((name, "16") for name in sorted(TASKS)), ("pose", "bf16")])
def test_a_backward_pass_inside_autocast_gives_the_same_bits(name, precision, monkeypatch):
    """The whole step, every gradient; and an island left open is seen."""
    one = partial(steps_of, partial(make, name, precision), [batch_of(name)])
    outside, inside = one()()[0], one(inside_autocast)()[0]
    assert all(torch.isfinite(gradient).all() for gradient in outside.gradients.values())
    assert torch.equal(outside.loss, inside.loss)
    assert [name for name, gradient in outside.gradients.items() if not torch.equal(gradient, inside.gradients[name])] == []
    monkeypatch.setattr(islands, "_Island", Leaky)
    leaky = one(inside_autocast)()[0]
    assert torch.equal(outside.loss, leaky.loss)
    different = [name for name, gradient in outside.gradients.items() if not torch.equal(gradient, leaky.gradients[name])]
    assert len(different) > 50  # everything below an attention block


def density_step(noise, dtype=torch.bfloat16):
    """Pose's objective on float32 outputs of a head, forward and backward inside autocast: what `capture=loss` records."""
    step, batch = make("pose", "32"), batch_of("pose")
    output = step.detector(batch.images)
    heads = [Dense({n: v.detach().requires_grad_() for n, v in d.outputs.items()}, d.points, d.strides) for d in (output.many, output.one)]
    with torch.autocast("cpu", dtype=dtype):
        many, one = step.criterion(noisy(Output(*heads, output.shared, output.size), noise), batch.targets)
        loss = combine(many, one, step.share, 2)
        loss.backward()
    found = {f"{which}.{name}": value.grad for which, head in zip("mo", heads, strict=True) for name, value in head.outputs.items()}
    return Observed(loss.detach(), found | {f"flow.{n}": p.grad for n, p in step.detector.shared["flow"].named_parameters()})


def attention_step(noise, dtype=torch.bfloat16, device="cpu"):
    draw = torch.Generator().manual_seed(0)
    q, k, taught = (torch.randn(shape, generator=draw) for shape in ((2, 2, 16, 30), (2, 2, 16, 30), (2, 2, 30, 30)))
    taught, q, k = taught.to(device), *(part.to(device).requires_grad_() for part in (q, k))
    with torch.autocast(device, dtype=dtype):
        loss = (noise(attention_weights(q, k)) * taught).sum()
        loss.backward()
    return Observed(loss.detach(), {"q": q.grad, "k": k.grad})


@pytest.mark.parametrize("step", [density_step, attention_step])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_island_open_in_its_backward_is_far_above_the_floor(step, dtype, monkeypatch):
    run = partial(step, dtype=dtype)
    floor = measure(run, 10, Yardstick())
    monkeypatch.setattr(islands, "_Island", Leaky)
    broken = floor.judge("open island", run(Noise()))
    print(step.__name__, dtype, {row.metric: (f"{row.value:.1e}", f"{row.ratio:.0f}") for row in broken.rows})
    assert floor.largest("whole") < 1e-4
    assert broken.row("loss").value == 0
    assert not broken.row("whole").passed
    assert broken.row("parameter").ratio > 100


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_task_has_a_floor(name):
    """In float32, against two images that change places: the floor of all layers is of that size, that of the head alone far below it."""
    batch, fresh = batch_of(name), partial(make, name, "32")
    flipped = steps_of(fresh, [batch.replaced(lambda tensor: tensor.flip(0))])()
    head, deep = (measure(steps_of(fresh, [batch], deep=deep), DRAWS, yardstick("32")) for deep in (False, True))
    assert {"loss", "whole", "group backbone", "group many.stems", "group one.classes"} <= set(head.draws)
    verdicts = [floor.judge("flipped", flipped) for floor in (head, deep)]
    print(name, *({row.metric: (f"{row.floor:.1e}", f"{row.ratio:.2f}") for row in verdict.rows} for verdict in verdicts))
    assert 1e-9 < head.largest("whole") < 1e-5
    assert verdicts[0].row("whole").ratio > 10
    assert 0 < verdicts[1].row("whole").ratio < 10


@pytest.mark.parametrize("optimizer", ["musgd", "adamw"])
def test_a_stale_learning_rate_is_caught(optimizer):
    """The second update is made with the rate of the first, as by a graph that holds it as a number: seen at the third step."""
    batches = [batch_of("detect", seed) for seed in (0, 1, 0)]
    run = partial(steps_of, partial(make, "detect", "32", optimizer), batches)
    floor = measure(run(), DRAWS, yardstick("32"))
    verdict = floor.judge("stale", run(stale)())
    print(optimizer, {row.metric: f"{row.ratio:.1f}" for row in verdict.rows if row.ratio})
    assert all(row.ratio == 0 for row in verdict.rows if not row.metric.startswith("2"))
    assert not verdict.row("2: whole").passed


def stale(step, loss):
    step.updater.schedule = Frozen(step.updater.schedule)
    loss.backward()


class Frozen:
    """A schedule that stands still at its first step."""

    def __init__(self, schedule):
        self.schedule = getattr(schedule, "schedule", schedule)

    def rate(self, step, start=0.0):
        return self.schedule.rate(0, start)

    def momentum_at(self, step):
        return self.schedule.momentum_at(0)

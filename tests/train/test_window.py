"""Accumulation equals the large batch."""

import copy
from dataclasses import replace

import pytest
import torch

from pellucid.config import TrainConfig
from pellucid.models.blocks import statistics_held
from pellucid.models.build import build
from pellucid.optim.gradients import FlatGradients
from pellucid.tasks import TASKS
from pellucid.tasks.base import SharedTerm, Term, by_pair
from pellucid.train.criterion import Criterion, combine
from pellucid.train.step import TrainStep
from pellucid.train.window import Window
from pellucid.types import Batch, ImageMeta, Targets
from pellucid.zoo import Card, create, make_task
from tests.train.test_floor import batch_of


def gradients(model, images, targets, parts: list[slice], size: int | None = None) -> torch.Tensor:
    """Of a window that has room for `size` parts; None: for these."""
    params = [p for _, p in model.named_parameters()]
    flat = FlatGradients(params)
    window = Window(size or len(parts), [name for name, _ in model.named_parameters()])
    criterion = Criterion(TASKS["detect"]())
    for part in parts:
        chosen = Targets(targets.labels[part], targets.valid[part], targets.boxes[part])
        many, one = criterion(model(images[part]), chosen)
        reference, first = window.reference, window.first or len(images[part])
        window.note((many.counts, one.counts), len(images[part]))
        combine(many, one, torch.tensor(0.6), first, reference).backward()
        flat.collect()
    window.correct(flat)
    return flat.flat.vector.clone()


def test_unequal_parts_give_the_gradient_of_the_whole():
    torch.manual_seed(0)
    model = build("n", 2, TASKS["detect"]().stems).eval()  # BatchNorm by its running statistics, as no batch split can change
    images = torch.rand(5, 3, 64, 64)
    boxes = torch.tensor([[4.0, 4, 40, 44], [20, 20, 60, 60], [8, 30, 30, 62], [0, 0, 30, 30]]).repeat(5, 1, 1)
    counts = torch.tensor([1, 4, 0, 2, 3])
    targets = Targets(torch.zeros(5, 4, dtype=torch.int64), torch.arange(4)[None] < counts[:, None], boxes)
    whole = gradients(model, images, targets, [slice(0, 5)])
    parts = gradients(model, images, targets, [slice(0, 2), slice(2, 3), slice(3, 5)])
    short = gradients(model, images, targets, [slice(0, 2), slice(2, 3), slice(3, 5)], size=8)
    naive = sum(gradients(model, images, targets, [part]) for part in (slice(0, 2), slice(2, 3), slice(3, 5)))
    assert whole.norm() > 0
    assert (parts - whole).norm() < 1e-4 * whole.norm()
    assert torch.equal(short, parts), "a window that ends early is divided by what it has"
    assert (naive - whole).norm() > 1e-2 * whole.norm()  # the plain sum is another gradient


def mixed_task(shared: bool):
    """Detection with terms of other divisors: means over pairs, a floor, and a loss on what an image shares."""
    task = TASKS["detect"]()
    terms = (
        *task.terms[:1],
        replace(task.terms[1], weight=by_pair),
        Term("far", 0.3, lambda pairs: pairs.outputs["box"].sum(-1), by_pair, 0.0),
    )
    extra = (SharedTerm("light", 2.0, lambda seen, targets, size: seen["light"].square().mean((1, 2, 3))),) if shared else ()
    return replace(task, terms=terms, shared_terms=extra, shared={"light": lambda widths, nc: Light(widths[0])} if shared else {})


class Light(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.conv = torch.nn.Conv2d(width, 2, 1)

    def forward(self, maps):
        return {"light": self.conv(maps[0])}


@pytest.mark.parametrize("shared", [False, True])
def test_other_divisors_are_known_before_the_first_part_is_learned_from(shared):
    """Unequal parts, one without objects, through the step itself."""
    task = mixed_task(shared)
    config = TrainConfig(model="detect-n", data="none", accumulate=3, batch=2)
    torch.manual_seed(0)
    model = build("n", 2, task.stems, task.shared)
    images = torch.rand(5, 3, 64, 64)
    boxes = torch.tensor([[4.0, 4, 40, 44], [20, 20, 60, 60], [8, 30, 30, 62], [0, 0, 30, 30]]).repeat(5, 1, 1)
    counts = torch.tensor([1, 4, 0, 2, 3])
    targets = Targets(torch.zeros(5, 4, dtype=torch.int64), torch.arange(4)[None] < counts[:, None], boxes)
    metas = tuple(ImageMeta(i, i, "", 64, 64) for i in range(5))

    def step_of(size: int) -> TrainStep:
        return TrainStep(copy.deepcopy(model).eval(), task, replace(config, accumulate=size), 2, "32", 100)

    def part(chosen: slice) -> Batch:
        return Batch(images[chosen], Targets(targets.labels[chosen], targets.valid[chosen], targets.boxes[chosen]), metas[chosen])

    def run(step: TrainStep, parts: list[slice]) -> torch.Tensor:
        taken = []
        for number, chosen in enumerate(parts):
            losses = 0
            for loss in step.losses_of(part(chosen), last=number == len(parts) - 1):
                loss.backward()
                step.collect()
                losses += 1
            taken.append(losses)
        assert taken == [0] * (len(parts) - 1) + [len(parts)]
        assert step.window.parts == len(parts)
        return step.gradients.flat.vector.clone()

    assert not step_of(1).criterion.one_divisor
    whole = run(step_of(1), [slice(0, 5)])
    assert whole.norm() > 0
    parts = run(step_of(3), [slice(0, 2), slice(2, 3), slice(3, 5)])
    assert (parts - whole).norm() < 1e-4 * whole.norm()
    early = run(step_of(4), [slice(0, 2), slice(2, 5)])  # the epoch ends before the window is full
    assert (early - whole).norm() < 1e-4 * whole.norm()


@pytest.mark.parametrize("detach", [True, False])
def test_what_both_branches_teach_has_no_divisor_of_its_own(detach):
    """Prototypes that the one-to-one branch teaches too, no other term in the way; unequal parts."""
    settings = {"mask_weight": "quality", "semantic": 0, "proto_detach": detach}
    card = Card("segment", "n", ("a", "b", "c"), (0, 1, 2), task_args=settings)
    whole, found = batch_of("segment"), []
    three = whole.replaced(lambda tensor: torch.cat((tensor, tensor[:1])))
    for parts in ([three], [part_of(three, slice(0, 2)), part_of(three, slice(2, 3))]):
        config = TrainConfig(model="segment-n", data="none", batch=2, accumulate=len(parts))
        step = TrainStep(create(card, 0).eval(), make_task(card), config, 3, "32", 8)
        assert step.criterion.one_divisor == detach
        for part in parts:
            for loss in step.losses_of(part):
                loss.backward()
                step.collect()
        step.window.correct(step.gradients)
        found.append(step.gradients.flat.vector.clone())
    assert found[0].norm() > 0
    assert (found[1] - found[0]).norm() < 1e-4 * found[0].norm()


def part_of(batch: Batch, chosen: slice) -> Batch:
    return batch.replaced(lambda tensor: tensor[chosen])


def test_a_look_leaves_the_statistics_as_they_are():
    model = build("n", 2, TASKS["detect"]().stems).train()
    before = {name: value.clone() for name, value in model.named_buffers()}
    with statistics_held(model), torch.no_grad():
        held = model(torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))).one.outputs["box"]
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())
    with torch.no_grad():
        free = model(torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))).one.outputs["box"]
    assert torch.equal(held, free)
    assert any(not torch.equal(value, before[name]) for name, value in model.named_buffers())

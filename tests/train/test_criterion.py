"""Invariants of the objective that no reference figure states."""

from dataclasses import replace

import pytest
import torch

from pellucid.assign.points import anchor_points
from pellucid.models.build import build
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion, combine
from pellucid.types import Dense, Output, Regions, Targets

POINTS, STRIDES = anchor_points([(16, 16), (8, 8), (4, 4)], (8, 16, 32), torch.device("cpu"))


def random_output(batch: int = 2, nc: int = 3, seed: int = 0) -> Output:
    g = torch.Generator().manual_seed(seed)

    def dense() -> Dense:
        cls = (torch.randn(batch, len(POINTS), nc, generator=g) - 2).requires_grad_()
        box = (2 + torch.rand(batch, len(POINTS), 4, generator=g)).requires_grad_()
        return Dense({"cls": cls, "box": box}, POINTS, STRIDES)

    return Output(dense(), dense(), {}, (128, 128))


def some_targets(batch: int = 2, empty_second: bool = False) -> Targets:
    boxes = torch.tensor([[10.0, 12, 60, 55], [70, 70, 100, 120], [0, 0, 0, 0], [0, 0, 0, 0]]).repeat(batch, 1, 1)
    valid = torch.tensor([True, True, False, False]).repeat(batch, 1)
    if empty_second:
        boxes[1], valid[1] = 0, False
    return Targets(torch.tensor([0, 2, 0, 0]).repeat(batch, 1), valid, boxes)


def test_nothing_to_find_teaches_only_background():
    output = random_output()
    targets = some_targets()
    nothing = Targets(targets.labels, torch.zeros_like(targets.valid), targets.boxes)
    many, one = Criterion(TASKS["detect"]())(output, nothing)
    combine(many, one, torch.tensor(0.5), 2).backward()
    for branch, dense in ((many, output.many), (one, output.one)):
        assert branch.sums["box"] == 0
        assert branch.sums["l1"] == 0
        assert branch.sums["cls"] > 0
        assert dense.outputs["box"].grad.abs().sum() == 0  # differentiable all the same
        assert dense.outputs["cls"].grad.abs().sum() > 0


def test_images_with_and_without_objects_mix():
    both = Criterion(TASKS["detect"]())(random_output(), some_targets(empty_second=True))[0]
    assert both.sums["box"] > 0
    assert torch.isfinite(torch.stack(list(both.sums.values()))).all()


@pytest.mark.parametrize("units", ["image", "stride"])
def test_l1_of_one_unit_of_error(units):
    """An error of one stride on one side costs gain x stride / image side / 4, or gain / 4 in stride units, on every level."""
    task = TASKS["detect"](box=0.0, l1=1.5, l1_units=units)
    for stride in (8, 16, 32):
        level = STRIDES.eq(stride)
        anchor = int(level.nonzero()[len(level.nonzero()) // 2])
        low, high = POINTS[anchor] - 2.0 * stride, POINTS[anchor] + 2.0 * stride
        box = torch.full((1, len(POINTS), 4), -50.0)  # inverted: no other anchor is similar to the object
        box[0, anchor] = torch.tensor([3.0, 2, 2, 2])
        dense = Dense({"cls": torch.full((1, len(POINTS), 1), 5.0), "box": box}, POINTS, STRIDES)
        targets = Targets(torch.zeros(1, 4, dtype=torch.int64), torch.tensor([[True, False, False, False]]), torch.zeros(1, 4, 4))
        targets.boxes[0, 0] = torch.cat((low, high))
        loss = Criterion(task).branch(dense, {}, targets, (128, 128), 10, single=False)
        expected = 1.5 * (stride / 128 if units == "image" else 1.0) / 4
        assert (loss.sums["l1"] / loss.weight).item() == pytest.approx(expected, rel=1e-4)


def test_a_crowd_in_one_image_trains():
    """1,000 objects: finite losses and gradients for every branch."""
    g = torch.Generator().manual_seed(1)
    low = torch.rand(1, 1024, 2, generator=g) * 120
    boxes = torch.cat((low, low + 2 + torch.rand(1, 1024, 2, generator=g) * 8), -1)
    valid = torch.arange(1024)[None] < 1000
    output = random_output(1)
    many, one = Criterion(TASKS["detect"]())(output, Targets(torch.zeros(1, 1024, dtype=torch.int64), valid, boxes))
    assert many.weight > 1
    combine(many, one, torch.tensor(0.8), 1).backward()
    assert all(torch.isfinite(d.outputs[n].grad).all() for d in (output.many, output.one) for n in ("cls", "box"))
    assert output.many.outputs["box"].grad.abs().sum() > 0


def test_one_to_one_loss_leaves_the_trunk_alone():
    model = build("n", 3, TASKS["detect"]().stems)
    output = model(torch.rand(1, 3, 64, 64))
    _, one = Criterion(TASKS["detect"]())(
        output, Targets(*(t[:1] for t in (some_targets().labels, some_targets().valid, some_targets().boxes / 2)))
    )
    sum(one.sums.values()).backward()
    touched = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert touched == {"one"}


def test_an_ignored_region_is_no_background():
    output, targets = random_output(), some_targets()
    cells = torch.zeros(2, 4, len(POINTS), dtype=torch.bool)
    cells[:, 0] = (POINTS > 64).all(-1)  # holds the second object, of class 2
    found = {}
    for name, ignored in (("none", None), ("region", Regions(torch.tensor([[2, 0, 0, 0]] * 2), cells))):
        many, one = Criterion(TASKS["detect"]())(output, replace(targets, ignored=ignored))
        found[name] = torch.autograd.grad(
            combine(many, one, torch.tensor(0.5), 2), [dense.outputs["cls"] for dense in (output.many, output.one)]
        )
    for plain, changed in zip(found["none"], found["region"], strict=True):
        same = plain == changed
        assert same[..., :2].all()
        assert same[:, ~cells[0, 0]].all()
        inside = changed[:, cells[0, 0], 2]
        assert ((inside == 0) | same[:, cells[0, 0], 2]).all()
        assert (inside != 0).any()  # the object's own anchors
        assert (inside == 0).sum() > 50

"""Anything that passes here is a task."""

import pickle

import pytest
import torch

from pellucid.geometry import Boxes
from pellucid.geometry.keypoints import Keypoints
from pellucid.geometry.polygons import Polygons
from pellucid.geometry.rboxes import RBoxes
from pellucid.models.build import build
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion, combine, gather_pairs
from pellucid.types import Assignment, Dense, Instances, Output, Targets

NC, SIZE = 3, 128
BOXES = torch.tensor([[10.0, 12, 60, 55], [70, 30, 120, 120]])


def spread(boxes: torch.Tensor, points: int = 17) -> torch.Tensor:
    """Points along the diagonals of the boxes, every third one absent: (n, K, 3)."""
    place = boxes[:, None, :2] + torch.linspace(0.1, 0.9, points)[:, None] * (boxes[:, None, 2:] - boxes[:, None, :2])
    seen = (torch.arange(points) % 3 > 0) * 2.0
    return torch.cat((place, seen[:, None].expand(len(boxes), -1, 1)), -1)


SHAPES = {  # what a reader delivers for the boxes, by the name of the need
    "boxes": lambda: Boxes(BOXES),
    "polygons": lambda: Polygons.from_parts([[[x1, y1, x2, y1, x2, y2, x1, y2]] for x1, y1, x2, y2 in BOXES.tolist()]),
    "keypoints": lambda: Keypoints(spread(BOXES)),
    "rboxes": lambda: RBoxes(torch.tensor([[35.0, 33, 50, 30, 0.3], [95, 75, 60, 40, 1.2]])),
}


@pytest.fixture(params=sorted(TASKS))
def task(request):
    return TASKS[request.param]()


@pytest.fixture
def output(task) -> Output:
    torch.manual_seed(0)
    return build("n", NC, task.stems, task.shared)(torch.rand(2, 3, SIZE, SIZE))


def objects(task) -> Instances:
    assert task.needs[0] == "boxes"
    return Instances(torch.tensor([0, 2]), {name: SHAPES[name]() for name in task.needs})


def targets(task, valid: bool = True) -> Targets:
    instances = objects(task)
    extras = {name: torch.stack([rows, rows]) for name, rows in task.targets(instances, SIZE).items()}
    boxes = instances.shapes["boxes"].data
    return Targets(instances.labels.repeat(2, 1), torch.full((2, 2), valid), torch.stack([boxes, boxes]), extras)


def test_it_is_picklable_and_named(task):
    again = pickle.loads(pickle.dumps(task))
    assert again.name == task.name in TASKS
    assert again.stems == task.stems


def test_head_gives_what_the_stems_state(task, output):
    stated = {"cls": NC} | {name: channels for stem in task.stems for name, channels in stem.outputs.items()}
    anchors = len(output.one.points)
    assert anchors == (SIZE // 8) ** 2 + (SIZE // 16) ** 2 + (SIZE // 32) ** 2
    for dense in (output.many, output.one):
        assert {name: tuple(value.shape) for name, value in dense.outputs.items()} == {n: (2, anchors, c) for n, c in stated.items()}


def test_shapes_are_of_the_stated_kinds(task, output):
    shapes = task.shapes(output.one.outputs, output.one.points, output.one.strides)
    assert all(value.shape[:2] == (2, len(output.one.points)) for value in shapes.values())
    rows = {name: value[0, :5].detach() for name, value in {**output.one.outputs, **shapes}.items()}
    finished = task.finish(rows, {name: value[0] for name, value in output.shared.items()})
    assert {name: type(shape) for name, shape in finished.items()} == dict(task.kinds)
    assert all(len(shape) == 5 for shape in finished.values())


def test_losses_are_finite_and_fixed_in_shape(task, output):
    many, one = Criterion(task)(output, targets(task))
    assert set(many.sums) == {"cls", *(term.name for term in (*task.terms, *task.shared_terms))}
    total = combine(many, one, torch.tensor(0.5), 2)
    total.backward()
    assert total.shape == ()
    assert torch.isfinite(total)


def test_an_empty_batch_gives_class_loss_only(task, output):
    many, one = Criterion(task)(output, targets(task, valid=False))
    for branch in (many, one):
        assert branch.sums["cls"] > 0
        assert all(branch.sums[term.name] == 0 for term in task.terms)
    combine(many, one, torch.tensor(0.5), 2).backward()


def test_each_term_falls_toward_the_target(task, output):
    """Follow the gradient of one term alone, pairs held: that term falls."""
    chosen = Assignment(torch.tensor([[5, 300]] * 2), torch.tensor([[0, 1]] * 2), torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bool))
    objects_ = targets(task)
    for term in task.terms:
        outputs = {name: value.detach().clone().requires_grad_() for name, value in output.many.outputs.items()}
        dense = Dense(outputs, output.many.points, output.many.strides)
        values = []
        for _ in range(80):
            loss = term.loss(gather_pairs(task, dense, output.shared, objects_.truth, chosen, (SIZE, SIZE))).sum()
            grads = torch.autograd.grad(loss, [v for n, v in outputs.items() if n != "cls"], allow_unused=True)
            with torch.no_grad():
                for value, grad in zip((v for n, v in outputs.items() if n != "cls"), grads, strict=True):
                    value -= 0 if grad is None else 0.1 * grad / grad.norm().clamp(min=1e-12)
            values.append(loss.item())
        assert values[-1] < 0.9 * values[0], term.name

"""What is frozen: facts that can be derived or counted, each with the function that finds it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.assign.aligned import align
from pellucid.geometry import Boxes
from pellucid.geometry.keypoints import Keypoints
from pellucid.geometry.polygons import Polygons
from pellucid.geometry.rboxes import RBoxes
from pellucid.models.build import build
from pellucid.models.count import count_parameters
from pellucid.models.scales import SCALES
from pellucid.optim.ema import Ema
from pellucid.optim.orthogonal import orthogonalise
from pellucid.optim.schedule import Schedule, branch_share
from pellucid.tasks import TASKS
from pellucid.tasks.base import Overlap
from pellucid.train.criterion import BranchLoss, Criterion, combine
from pellucid.types import Dense, Instances, Targets

CLASSES = {"detect": 80, "segment": 80, "pose": 1, "obb": 15}  # of the published tables
SIZE = 96  # of the fixed batch
OBJECTS = ([6.0, 8, 50, 44], [40, 36, 90, 92], [60, 4, 74, 16])  # boxes of the first image; the second has the first of them alone
GOLDEN_RATIO = 0.6180339887498949


@dataclass(frozen=True)
class Golden:
    """`make()` gives nested numbers x; each may be off by `tolerance` x max(1, |x|), and none of them, less that, lies below `floor`."""

    make: Callable[[], Any]
    tolerance: float
    floor: float
    reason: str


def counts() -> dict[str, Any]:
    """Parameters as trained, and as they predict."""
    return {name: {scale: _count(name, scale) for scale in SCALES} for name in TASKS}


def _count(name: str, scale: str) -> dict[str, int]:
    task = TASKS[name]()
    with torch.device("meta"):
        model = build(scale, CLASSES[name], task.stems, task.shared, task.training_only)
    return {"trained": count_parameters(model), "fused": count_parameters(model.fuse())}


def assignment() -> dict[str, Any]:
    """Two objects, four anchors, two candidates each, by numbers whose powers are easy.

    p is 0.25 and 0.64, so sqrt(p) is 0.5 and 0.8. Object 0 sees u = 1, 1/2, 1/4 at anchors 0, 1, 2: t = 0.5, 0.5/64, 0.5/4096, it claims
    0 and 1. Object 1 sees 3/4, 1, 1/2 at 1, 2, 3: t = 0.8 (3/4)^6, 0.8, 0.8/64, it claims 2 and 1. Anchor 1 goes to the larger u, which is
    object 1's. q = t max(u) / max(t): 1 at anchor 0, 1 at anchor 2, (3/4)^6 at anchor 1. One-to-one: anchors 0 and 2 with 1.
    """
    u = torch.tensor([[[1, 0.5, 0.25, 0], [0, 0.75, 1, 0.5]]], dtype=torch.float64)
    logits = torch.tensor([0.25, 0.64], dtype=torch.float64).logit().expand(1, 4, 2)
    dense = Dense({"cls": logits}, torch.zeros(4, 2, dtype=torch.float64), torch.full((4,), 8.0, dtype=torch.float64))
    targets = Targets(torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, 4, dtype=torch.float64))
    overlap = Overlap(lambda predicted, truth: u, lambda points, strides, truth: u > 0)
    found = {}
    for name, single in (("many", False), ("one", True)):
        chosen = align(dense, {}, {}, targets, overlap, 2, single)
        rows = [(int(chosen.anchor[0, i]), int(chosen.object[0, i]), float(chosen.weight[0, i])) for i in chosen.valid[0].nonzero()[:, 0]]
        found[name] = [{"anchor": anchor, "object": owner, "q": q} for anchor, owner, q in sorted(rows)]
    return found


def schedule() -> dict[str, Any]:
    """Factors on the learning rate, momentum, share of the one-to-many branch, and how an average follows n at update n."""
    plan, steps = Schedule(steps=100, warmup=10), (0, 1, 5, 9, 10, 50, 99, 100, 120)
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1)).double()
    model[0].weight.data.zero_()
    ema = Ema(model)
    ema.updates = ema.updates.double()
    followed = {}
    for update in range(1, 1001):
        model[0].weight.data.fill_(update)
        ema.update(model)
        if update in (1, 10, 100, 1000):
            followed[str(update)] = float(ema.model[0].weight)
    return {
        "rate": {str(step): plan.rate(step) for step in steps},
        "bias rate": {str(step): plan.rate(step, start=10.0) for step in steps},
        "momentum": {str(step): plan.momentum_at(step) for step in steps},
        "share": [branch_share(epoch, 8) for epoch in range(8)],
        "ema": followed,
    }


def newton_schulz() -> dict[str, Any]:
    """Singular values after five steps, largest first; of diag(3, 4) they are those of the odd polynomial at 0.6 and 0.8."""
    matrices = {
        "diag(3, 4)": [[3, 0], [0, 4]],
        "ones above the diagonal": [[1, 1, 1], [0, 1, 1], [0, 0, 1]],
        "1 ... 8": [[1, 2, 3, 4], [5, 6, 7, 8]],
        "Hilbert, 2 x 3": [[1, 1 / 2, 1 / 3], [1 / 2, 1 / 3, 1 / 4]],
    }
    return {
        name: torch.linalg.svdvals(orthogonalise(torch.tensor([rows], dtype=torch.float64))[0]).tolist() for name, rows in matrices.items()
    }


def loss(name: str) -> dict[str, Any]:
    """Means by name of both branches, the total and the norm of its gradient, in float64: weights, pixels and objects by rule."""
    task = TASKS[name]()
    model = build("n", 3, task.stems, task.shared, task.training_only).double().train()
    fill(model)
    many, one = Criterion(task)(model(spread((2, 3, SIZE, SIZE), 0.5)), fixed_targets(name))
    total = combine(many, one, torch.tensor(0.6, dtype=torch.float64), 2)
    total.backward()
    gradient = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    return {"many": _means(many), "one": _means(one), "total": float(total.detach()), "gradient": float(gradient)}


def _means(branch: BranchLoss) -> dict[str, float]:
    return {name: float(value) for name, value in branch.items().items()}


def fill(model: nn.Module) -> None:
    """Weights by rule: multiples of the golden ratio modulo 1, scaled by the inputs; no random generator can change them."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            values = (spread(parameter.shape, number * 0.1) - 0.5) * 12**0.5  # mean 0, variance 1
            constant = parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all())
            if parameter.dim() > 1:
                parameter.copy_(values * (2.0 / parameter[0].numel()) ** 0.5)
            else:  # BatchNorm weights and the biases of the head keep their meaning
                parameter.copy_(parameter * (1 + 0.1 * values) if constant else 0.1 * values)


def spread(shape: Sequence[int], start: float) -> Tensor:
    """Numbers in [0, 1) that fill it evenly, float64, the same on every machine."""
    count = int(torch.Size(shape).numel())
    return ((torch.arange(count, dtype=torch.float64) + 1) * GOLDEN_RATIO + start).remainder(1.0).view(tuple(shape))


def fixed_targets(name: str) -> Targets:
    """Three objects on the first image, one on the second, and room for more; all of them in float64."""
    task, rows = TASKS[name](), 4
    instances = fixed_objects(task.needs)
    extras = {key: _padded(value, rows) for key, value in task.targets(instances, SIZE).items()}
    boxes = _padded(torch.tensor(OBJECTS, dtype=torch.float64), rows)
    labels, valid = _padded(torch.tensor([0, 2, 1]), rows), torch.tensor([[True, True, True, False], [True, False, False, False]])
    return Targets(labels, valid, boxes, {key: value.double() if value.is_floating_point() else value for key, value in extras.items()})


def fixed_objects(needs: Sequence[str]) -> Instances:
    """The objects with every kind of shape: lozenges in the boxes, points on their diagonals, boxes turned a little."""
    boxes = torch.tensor(OBJECTS)
    low, high = boxes.chunk(2, -1)
    along = torch.linspace(0.1, 0.9, 17)[:, None]
    places = low[:, None] + along * (high - low)[:, None]
    seen = (torch.arange(17) % 3 > 0).float()[:, None] * 2
    turned = torch.cat(((low + high) / 2, (high - low) * 0.8, torch.tensor([[0.3], [1.2], [-0.4]])), -1)
    shapes = {
        "boxes": Boxes(boxes),
        "polygons": Polygons.from_parts([[_lozenge(*row)] for row in boxes.tolist()]),
        "keypoints": Keypoints(torch.cat((places, seen.expand(3, -1, 1)), -1)),
        "rboxes": RBoxes(turned),
    }
    return Instances(torch.tensor([0, 2, 1]), {name: shapes[name] for name in needs})


def _lozenge(x1: float, y1: float, x2: float, y2: float) -> list[float]:
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    return [x, y1, x2, y, x, y2, x1, y]


def _padded(values: Tensor, rows: int) -> Tensor:
    """(2, rows, ...): all of `values`, and the first of them alone."""
    whole = values.new_zeros(2, rows, *values.shape[1:])
    whole[0, : len(values)], whole[1, 0] = values, values[0]
    return whole


def _loss_of(name: str) -> Golden:
    reason = f"the objective of {name} on a batch by rule, in float64: a defect that leaves out one pair or term moves it by far more"
    return Golden(lambda: loss(name), 1e-8, 1e-3, reason)


GOLDENS = {
    "counts": Golden(counts, 0, 1_000_000, "parameters of the published tables, all tasks and scales: counted, so exact"),
    "assignment": Golden(
        assignment, 1e-8, -1e-8, "an assignment done by hand in goldens/values.py; 1e-9 in the divisor moves q by less than 2e-9"
    ),
    "schedule": Golden(schedule, 1e-12, 0, "formulas of learning rate, momentum, progressive weight (Eq. 3) and averaging, in float64"),
    "newton_schulz": Golden(
        newton_schulz, 1e-9, 0.6, "five steps push singular values into about [0.7, 1.2] (Jordan, 2024); below 0.6 they would not"
    ),
    **{f"loss-{name}": _loss_of(name) for name in TASKS},
}

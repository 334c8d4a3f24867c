"""Accumulation equals the large batch."""

import torch

from pellucid.models.build import build
from pellucid.optim.gradients import FlatGradients
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion
from pellucid.train.window import Window
from pellucid.types import Targets


def gradients(model, images, targets, parts: list[slice]) -> torch.Tensor:
    params = [p for _, p in model.named_parameters()]
    flat = FlatGradients(params)
    window = Window(len(parts), [name for name, _ in model.named_parameters()])
    criterion = Criterion(TASKS["detect"]())
    for part in parts:
        chosen = Targets(targets.labels[part], targets.valid[part], targets.boxes[part])
        many, one = criterion(model(images[part]), chosen)
        window.add(many, one, torch.tensor(0.6), len(images[part])).backward()
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
    naive = sum(gradients(model, images, targets, [part]) for part in (slice(0, 2), slice(2, 3), slice(3, 5)))
    assert whole.norm() > 0
    assert (parts - whole).norm() < 1e-4 * whole.norm()
    assert (naive - whole).norm() > 1e-2 * whole.norm()  # the plain sum is another gradient

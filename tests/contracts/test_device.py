"""The network and the objective of every task on a pretended GPU: no tensor of the host gets between, and none is read."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pellucid.models.build import build
from pellucid.tasks import TASKS
from pellucid.train.criterion import Criterion, combine

from .test_task import NC, SIZE, targets


def objective(task, taught) -> torch.Tensor:
    on_device = taught.replaced(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda"))
    with torch.device("cuda"):
        model = build("n", NC, task.stems, task.shared)
        images, share = torch.empty(2, 3, SIZE, SIZE), torch.empty(())
    many, one = Criterion(task)(model(images), on_device)
    return combine(many, one, share, 2)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_objective_stays_on_its_device(name, monkeypatch):
    monkeypatch.setattr("pellucid.losses.masks._kernels", lambda: None)  # kernels need a real one
    task = TASKS[name]()
    taught = targets(task)
    with FakeTensorMode():
        assert objective(task, taught).device.type == "cuda"


def test_a_mix_would_be_seen():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="device"):
        torch.empty(3, device="cuda") + torch.empty(3)

"""The network and the objective of every task on a pretended GPU: no tensor of the host gets between, and none is read."""

from contextlib import nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pellucid.models.build import build
from pellucid.numerics.constants import constant
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


@pytest.mark.parametrize("claims", [None, "kernel"])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_objective_stays_on_its_device(name, claims, monkeypatch):
    """By comparing all with all, and by the kernel, whose launch alone is left out."""
    launched = []
    monkeypatch.setattr("pellucid.losses.masks._kernels", lambda: None)  # kernels need a real one
    if claims:
        kernels = pytest.importorskip("pellucid.assign.kernels")
        monkeypatch.setattr(kernels, "_claim", {(4,): lambda *given, **options: launched.append(given)})
        monkeypatch.setattr("torch.cuda.device", nullcontext)
    monkeypatch.setattr("pellucid.assign.aligned._kernels", lambda: kernels if claims else None)
    task = TASKS[name]()
    taught = targets(task)
    constant.cache_clear()
    with FakeTensorMode():
        assert objective(task, taught).device.type == "cuda"
    constant.cache_clear()  # of what was pretended
    assert len(launched) == (2 if claims else 0)


def test_a_mix_would_be_seen():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="device"):
        torch.empty(3, device="cuda") + torch.empty(3)

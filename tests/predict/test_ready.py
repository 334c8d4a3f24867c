"""A network is fused once, and again whenever what it is made of has changed."""

import gc

import pytest
import torch
from torch import nn

from pellucid import Model
from pellucid.models.build import Detector
from pellucid.predict import ready as module
from pellucid.predict.ready import ready
from pellucid.zoo import Card, create

CPU = torch.device("cpu")
CARD = Card("detect", "n", ("a", "b"), (0, 1))


@pytest.fixture
def detector():
    return Model("trees-detect-n").detector


@pytest.fixture
def fused(monkeypatch):
    """Counts what is fused."""
    made = []
    whole = Detector.fuse
    monkeypatch.setattr(Detector, "fuse", lambda self, keep="one": made.append(keep) or whole(self, keep))
    return made


def looked(network):
    with torch.no_grad():
        return network(torch.randint(256, (1, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))).one.outputs["cls"]


def test_it_is_fused_once(detector, fused):
    first = ready(detector, "one", CPU)
    assert ready(detector, "one", CPU) is first
    assert fused == ["one"]
    assert torch.equal(looked(first), looked(detector.fuse()))
    both = ready(detector, "both", CPU)
    assert both.many is not None
    assert ready(detector, "both", CPU) is both
    other = create(CARD, 1)
    assert looked(ready(other, "both", CPU)).shape != looked(both).shape


@torch.no_grad()
def in_place(detector):
    detector.neck.down3.conv.weight.mul_(1.5)


def by_data(detector):
    for parameter in detector.parameters():
        parameter.data.mul_(1.1)


def by_loading(detector):
    detector.load_state_dict({name: value * 1.2 if value.is_floating_point() else value for name, value in detector.state_dict().items()})


def by_statistics(detector):
    detector.backbone.layers[1].bn.running_var.add_(3)


def by_new_tensor(detector):
    unit = detector.backbone.layers[1]
    unit.conv.weight = nn.Parameter(unit.conv.weight.detach() * 2)


def by_another_module(detector):
    detector.backbone.layers[0].act = nn.ReLU()


def by_a_hook(detector):
    detector.backbone.layers[0].register_forward_hook(lambda module, given, output: output + 1)


CHANGES = [in_place, by_data, by_loading, by_statistics, by_new_tensor, by_another_module, by_a_hook]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(detector, change):
    before = looked(ready(detector, "one", CPU))
    change(detector)
    after = looked(ready(detector, "one", CPU))
    assert not torch.equal(before, after)
    assert torch.equal(after, looked(detector.fuse()))


def test_an_optimizer_step_is_noticed(detector):
    before = looked(ready(detector, "one", CPU))
    detector.train()
    detector(torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8)).one.outputs["cls"].sum().backward()
    torch.optim.SGD(detector.parameters(), 0.1).step()
    assert not torch.equal(before, looked(ready(detector, "one", CPU)))


def test_tensors_whose_changes_are_not_counted_are_fused_every_time(fused):
    with torch.inference_mode():
        detector = create(CARD, 0)
        assert ready(detector, "one", CPU) is not ready(detector, "one", CPU)
    assert fused == ["one", "one"]


def test_nothing_is_kept_of_a_detector_that_is_gone():
    gc.collect()
    before = len(module._KEPT)
    detector = create(CARD, 0)
    ready(detector, "one", CPU)
    assert len(module._KEPT) == before + 1
    del detector
    gc.collect()
    assert len(module._KEPT) <= before


def test_another_network_is_taken_as_it_is():
    network = nn.Dropout()
    assert ready(network, "one", CPU) is network
    assert not network.training

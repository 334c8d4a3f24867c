"""Weights cast all at once: the numbers and gradients of autocast, bit for bit."""

import pytest
import torch

from pellucid.errors import UsageError
from pellucid.models.build import build
from pellucid.numerics.casts import CastConvolutions
from pellucid.tasks import TASKS


def model_of(name):
    torch.manual_seed(0)
    task = TASKS[name]()
    return build("n", 3, task.stems, task.shared).to(memory_format=torch.channels_last)


def values_of(output):
    return [*output.many.outputs.values(), *output.one.outputs.values(), *output.shared.values()]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_outputs_and_gradients_are_those_of_autocast(name):
    model, images = model_of(name), torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    found = []
    for cast in (False, True):
        model.zero_grad()
        for layer in model.modules():
            if hasattr(layer, "running_mean"):
                layer.reset_running_stats()
        with torch.autocast("cpu", torch.bfloat16):
            network = CastConvolutions(model, torch.bfloat16) if cast else model
            values = values_of(network(images))
        sum(value.float().square().mean() for value in values).backward()
        found.append(([value.detach() for value in values], {key: value.grad for key, value in model.named_parameters()}))
    (plain, plain_gradients), (ours, gradients) = found
    assert len(network.weights) > 100
    assert all(isinstance(p, torch.nn.Parameter) and p.dtype == torch.float32 for p in model.parameters())
    assert any(value.dtype == torch.bfloat16 for value in ours)
    assert all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))
    assert sum(value is not None and bool(value.abs().sum() > 0) for value in gradients.values()) > 200
    for key, gradient in gradients.items():
        assert (gradient is None) == (plain_gradients[key] is None), key
        assert gradient is None or torch.equal(gradient, plain_gradients[key]), key


def test_frozen_weights_are_left_to_autocast():
    model, images = model_of("detect"), torch.rand(1, 3, 64, 64)
    model.backbone.requires_grad_(False)
    network = CastConvolutions(model, torch.bfloat16)
    assert network.weights
    assert all(weight.requires_grad for weight in network.weights)
    frozen = CastConvolutions(model.requires_grad_(False).eval(), torch.bfloat16)
    assert frozen.weights == ()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(frozen(images).one.outputs["cls"], model(images).one.outputs["cls"])


def test_the_weights_are_back_after_an_error():
    model = model_of("detect")
    before = list(model.parameters())
    with pytest.raises(UsageError, match="multiple of 32"):
        CastConvolutions(model, torch.bfloat16)(torch.rand(1, 3, 60, 60))
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))

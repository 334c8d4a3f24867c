"""SiLU after BatchNorm that keeps its input alone: the numbers of the two layers, with less held for the backward."""

import pytest
import torch
from torch.nn.functional import batch_norm, silu

from pellucid.models.blocks import ConvUnit, statistics_held
from pellucid.numerics.normed import normed_silu

CHANNELS, MOMENTUM, EPS = 16, 0.03, 1e-3


def given(dtype: torch.dtype, kept: torch.dtype = torch.float32) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(4, CHANNELS, 9, 11, generator=g) + torch.linspace(-2, 2, CHANNELS)[:, None, None]
    x = x.to(dtype).to(memory_format=torch.channels_last)
    weight, bias = torch.rand(CHANNELS, generator=g) + 0.5, torch.randn(CHANNELS, generator=g)
    return [x.requires_grad_(), weight.to(kept).requires_grad_(), bias.to(kept).requires_grad_()]


def statistics() -> list[torch.Tensor]:
    return [torch.full((CHANNELS,), 0.3), torch.full((CHANNELS,), 2.0)]


def plain(x, known, weight, bias):
    return silu(batch_norm(x, *known, weight, bias, True, MOMENTUM, EPS))


def ours(x, known, weight, bias):
    return normed_silu(x, tuple(known), weight, bias, MOMENTUM, EPS)


def held_bytes(work) -> int:
    """Bytes that a forward pass keeps for its backward, each storage once; the tensor it gives among them if it is kept."""
    seen = {}

    def note(tensor):
        seen[tensor.untyped_storage().data_ptr()] = (tensor, tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        work()
    return sum(size for _, size in seen.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_output_and_the_statistics_are_those_of_the_layers_in_every_bit(dtype):
    x, weight, bias = given(dtype)
    known, moved = statistics(), statistics()
    assert torch.equal(ours(x, known, weight, bias), plain(x, moved, weight, bias))
    assert all(torch.equal(a, b) for a, b in zip(known, moved, strict=True))
    assert not torch.equal(known[0], statistics()[0])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_the_gradients_are_those_of_the_layers(dtype, tolerance):
    inputs = given(dtype)
    x, weight, bias = inputs
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = torch.autograd.grad(ours(x, statistics(), weight, bias), inputs, upstream)
    expected = torch.autograd.grad(plain(x, statistics(), weight, bias), inputs, upstream)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert (a - b).abs().max() <= tolerance * b.abs().max()
        assert b.abs().max() > 0.1


def test_the_gradients_are_right_in_double_precision():
    x, weight, bias = given(torch.float64, torch.float64)
    x = x.detach()[:2, :, :2, :2].requires_grad_()
    assert torch.autograd.gradcheck(lambda *parts: ours(parts[0], (None, None), *parts[1:]), (x, weight, bias))


def test_gradients_of_gradients_are_those_of_the_layers():
    x, weight, bias = given(torch.float64, torch.float64)
    x = x.detach()[:2, :4, :2, :2].requires_grad_()
    weight, bias = (each.detach()[:4].requires_grad_() for each in (weight, bias))
    found = []
    for function in (ours, plain):
        (first,) = torch.autograd.grad(function(x, (None, None), weight, bias).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.pow(2).sum(), (x, weight)))  # the bias has no part in it
        assert found[-1][0].abs().max() > 1e-3
    torch.testing.assert_close(*found)
    assert torch.autograd.gradgradcheck(lambda *parts: ours(parts[0], (None, None), *parts[1:]), (x, weight, bias))


def test_one_value_a_channel_is_refused():
    _, weight, bias = given(torch.float32)
    with pytest.raises(ValueError, match=r"expected more than one value a channel in training, got \(1, 16, 1, 1\)"):
        ours(torch.zeros(1, CHANNELS, 1, 1), statistics(), weight, bias)


def test_a_unit_whose_norm_is_frozen_uses_its_statistics():
    unit = ConvUnit(CHANNELS, CHANNELS, 1)
    unit.bn.eval()
    x = given(torch.float32)[0]
    output = unit(x)
    assert unit.training
    assert torch.equal(unit.bn.running_mean, torch.zeros(CHANNELS))
    assert torch.equal(output, silu(unit.bn(unit.conv(x))))


def test_only_what_needs_a_gradient_gets_one():
    x, weight, bias = given(torch.float32)
    ours(x.detach(), statistics(), weight, bias.detach()).sum().backward()
    assert weight.grad is not None
    assert x.grad is None
    assert bias.grad is None


def test_two_thirds_are_held():
    x, weight, bias = given(torch.float32)
    unit = x.numel() * x.element_size()
    assert unit < held_bytes(lambda: ours(x, statistics(), weight, bias)) < 1.1 * unit
    assert 2 * unit < held_bytes(lambda: plain(x, statistics(), weight, bias))


def test_a_unit_holds_its_input_and_what_its_convolution_gives():
    unit = ConvUnit(CHANNELS, CHANNELS, 1)
    x = given(torch.float32)[0]
    unit_bytes = x.numel() * x.element_size()
    assert 2 * unit_bytes < held_bytes(lambda: unit(x)) < 2.2 * unit_bytes
    assert unit.bn.running_mean.abs().max() > 0
    before = unit.bn.running_mean.clone()
    with statistics_held(unit):
        unit(x)
    assert torch.equal(unit.bn.running_mean, before)


def test_a_unit_without_an_activation_has_none():
    unit = ConvUnit(CHANNELS, CHANNELS, 1, act=False)
    assert unit(given(torch.float32)[0]).min() < -1  # SiLU is never below -0.28
    assert ConvUnit(CHANNELS, CHANNELS, 1)(given(torch.float32)[0]).min() > -0.3

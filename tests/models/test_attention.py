"""The attention island: finite in half precision where the plain formula is not, and the plain formula bit for bit in float32."""

import pytest
import torch

from pellucid.models import attention
from pellucid.models.attention import Attention, PSABlock, attention_weights

HALVES = [torch.float16, torch.bfloat16]


def plain_weights(q, k):
    """The formula as it is written, in whatever arithmetic surrounds it."""
    return (q.transpose(-2, -1) @ k * q.shape[-2] ** -0.5).softmax(-1)


def logits_in(dtype, block, x):
    """q^T k before it is scaled, under autocast to `dtype` (None: float32)."""
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        qkv = block.qkv(x).reshape(len(x), block.heads, -1, x.shape[-2] * x.shape[-1])
        q, k, _ = qkv.split((block.key_dim, block.key_dim, block.value_dim), 2)
        return q.transpose(-2, -1) @ k


@pytest.fixture
def probe():
    """A block and an input; in evaluation an untrained BatchNorm lets values pass."""
    torch.manual_seed(0)
    return Attention(256).eval(), torch.randn(1, 256, 20, 20) * 100


def test_plain_logits_leave_the_range_of_float16(probe):
    block, x = probe
    with torch.no_grad():
        plain, half = (logits_in(dtype, block, x) for dtype in (None, torch.float16))
    print(f"float32 maximum {plain.abs().max():.0f}, non-finite in float16 {(~half.isfinite()).sum()} of {half.numel()}")
    assert half.dtype == torch.float16
    assert torch.finfo(torch.float16).max < plain.abs().max() < 1e6
    assert (~half.isfinite()).sum() >= 200


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_is_finite_where_they_are_not(probe, dtype):
    block, x = probe
    x.requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        out = block(x)
    out.float().square().mean().backward()
    assert out.dtype == dtype
    assert torch.isfinite(out).all()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in block.parameters())
    assert all(p.grad.abs().max() > 0 for p in block.parameters())


def test_the_plain_formula_is_not(probe, monkeypatch):
    block, x = probe
    monkeypatch.setattr(attention, "attention_weights", plain_weights)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        out = block(x)
    assert not torch.isfinite(out).all()


def test_in_float32_it_is_the_plain_formula_bit_for_bit(monkeypatch):
    """Outputs, the gradient of the input and of every parameter."""
    torch.manual_seed(0)
    block, x = PSABlock(128), torch.randn(2, 128, 6, 5)
    found = []
    for weights in (attention_weights, plain_weights):
        monkeypatch.setattr(attention, "attention_weights", weights)
        given = x.clone().requires_grad_()
        out = block(given)
        found.append([out, *torch.autograd.grad(out.square().sum(), [given, *block.parameters()])])
    assert len(found[0]) == 2 + len(list(block.parameters())) == 17
    assert all(part.abs().max() > 0 for part in found[0])
    assert all(torch.equal(ours, plain) for ours, plain in zip(*found, strict=True))


def test_float64_stays_float64_and_passes_gradcheck():
    q, k = (torch.randn(1, 2, 3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert attention_weights(q, k).dtype == torch.float64
    assert torch.autograd.gradcheck(attention_weights, (q, k))
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(attention_weights(q, k), plain_weights(q, k))


@pytest.mark.parametrize("dtype", HALVES)
def test_weights_and_gradients_have_the_dtypes_of_the_inputs(dtype):
    q, k = (torch.randn(1, 1, 4, 6).to(given).requires_grad_() for given in (dtype, torch.float32))
    with torch.autocast("cpu", dtype=dtype):
        weights = attention_weights(q, k)
        weights.sum().backward()
    assert (weights.dtype, q.grad.dtype, k.grad.dtype) == (dtype, dtype, torch.float32)


@pytest.mark.parametrize("dtype", HALVES)
def test_backward_inside_autocast_is_backward_outside(dtype):
    found = [gradients(dtype, inside) for inside in (False, True)]
    assert found[0][0].abs().max() > 0
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def gradients(dtype, inside):
    """By q and k in float32, with the forward pass under autocast and the backward pass inside of it or not."""
    draw = torch.Generator().manual_seed(0)
    q, k, taught = (torch.randn(shape, generator=draw) * 3 for shape in ((2, 2, 16, 30), (2, 2, 16, 30), (2, 2, 30, 30)))
    q, k = q.requires_grad_(), k.requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = (attention_weights(q, k) * taught).sum()
        if inside:
            return torch.autograd.grad(value, (q, k))
    return torch.autograd.grad(value, (q, k))


def test_no_gradient_is_kept_where_none_is_asked_for():
    with torch.no_grad():
        weights = attention_weights(torch.randn(1, 1, 4, 6, requires_grad=True), torch.randn(1, 1, 4, 6))
    assert weights.grad_fn is None
    assert attention_weights(torch.randn(1, 1, 4, 6), torch.randn(1, 1, 4, 6)).grad_fn is None

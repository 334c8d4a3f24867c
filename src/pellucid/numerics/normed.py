"""SiLU of a batch-normalised tensor that keeps no middle: a third of what a convolution unit would hold for its backward."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, silu

from .kernels import compiled

Statistics = tuple[Tensor | None, Tensor | None]  # running mean and variance


def normed_silu(x: Tensor, statistics: Statistics, weight: Tensor, bias: Tensor, momentum: float, eps: float) -> Tensor:
    """silu(batch_norm(x)) of training, (B, C, H, W) to the same, the output the same in every bit; `statistics` are moved, unless None.

    The backward makes the normalised values again from x: they may differ from those of the forward by their last bit. ValueError where a
    channel has one value.
    """
    if x.numel() == x.shape[1]:
        raise ValueError(
            f"BatchNorm: expected more than one value a channel in training, got {tuple(x.shape)}; give larger or more pictures"
        )
    return _NormedSilu.apply(x, *statistics, weight, bias, momentum, eps)  # type: ignore[no-untyped-call, no-any-return, unused-ignore]


class _NormedSilu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor | None, variance: Tensor | None, weight: Tensor, bias: Tensor, momentum: float, eps: float
    ) -> Tensor:
        normed, own_mean, own_scale, reserve, ctx.implementation = torch._batch_norm_impl_index(
            x, weight, bias, mean, variance, True, momentum, eps, torch.backends.cudnn.enabled
        )
        ctx.eps = eps
        ctx.save_for_backward(x, weight, bias, own_mean, own_scale, reserve)
        return silu(normed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        by = _by_layers if torch.is_grad_enabled() else _by_parts  # a gradient that is itself to be differentiated has all its middles
        needed = [ctx.needs_input_grad[k] for k in (0, 3, 4)]
        by_x, by_weight, by_bias = by(ctx, gradient, needed)
        return by_x, None, None, by_weight, by_bias, None, None


def _by_parts(ctx: Any, gradient: Tensor, needed: list[bool]) -> Iterable[Tensor | None]:
    x, weight, bias, mean, scale, reserve = ctx.saved_tensors
    kernels = _kernels() if x.is_cuda else None
    by_normed = (kernels.silu_gradient if kernels else silu_gradient)(gradient, x, mean, scale, weight, bias)
    found = torch.ops.aten._batch_norm_impl_index_backward(
        ctx.implementation, x, by_normed, weight, None, None, mean, scale, True, ctx.eps, needed, reserve
    )
    return [each if need else None for each, need in zip(found, needed, strict=True)]


def _by_layers(ctx: Any, gradient: Tensor, needed: list[bool]) -> Iterable[Tensor | None]:
    x, weight, bias, *_ = ctx.saved_tensors
    output = silu(batch_norm(x, None, None, weight, bias, True, 0.0, ctx.eps))
    wanted = [each for each, need in zip((x, weight, bias), needed, strict=True) if need]
    found = iter(torch.autograd.grad(output, wanted, gradient, create_graph=True))
    return [next(found) if need else None for need in needed]


def silu_gradient(gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The gradient by the input of SiLU, which is (x - mean) * scale * weight + bias; all but `gradient` and x are (C)."""
    factor = scale * weight
    normed = torch.addcmul((bias - mean * factor)[:, None, None], x.to(factor.dtype), factor[:, None, None]).to(x.dtype)
    return torch.ops.aten.silu_backward(gradient, normed)


def _kernels() -> ModuleType | None:
    return compiled("pellucid.numerics.normed_kernels", "the backward of BatchNorm and SiLU")

"""Regions that run in mixed arithmetic, and islands in them that run in full precision whatever surrounds them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import UsageError

PRECISIONS = {"32": torch.float32, "16": torch.float16, "bf16": torch.bfloat16}


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    """Mixed arithmetic as named in `PRECISIONS`; none for "32"."""
    if precision not in PRECISIONS:
        raise UsageError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    dtype = PRECISIONS[precision]
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def autocast_off(device: torch.device) -> AbstractContextManager:
    """A region in which autocast is off; on a device without autocast (meta) there is nothing to turn off."""
    return torch.autocast(device.type, enabled=False) if torch.amp.is_autocast_available(device.type) else nullcontext()


def full(tensor: Tensor) -> Tensor:
    """The same numbers in at least float32; float64 stays float64."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def island(function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """`function(*tensors)` with autocast off, in the backward pass too, whose own surroundings may differ; it keeps only its inputs.

    The forward pass is done again in the backward pass: memory is that of the inputs. `function` uses no random numbers.
    """
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _Island.apply(function, *tensors)
    with autocast_off(tensors[0].device):
        return function(*tensors)


class _Island(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.function = function
        ctx.save_for_backward(*tensors)
        with autocast_off(tensors[0].device):
            return function(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tensors = [
            tensor.detach().requires_grad_(needed) for tensor, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        ]
        with torch.enable_grad(), autocast_off(tensors[0].device):
            wanted = [tensor for tensor in tensors if tensor.requires_grad]
            found = iter(torch.autograd.grad(ctx.function(*tensors), wanted, gradients, allow_unused=True))
        return (None, *(next(found) if tensor.requires_grad else None for tensor in tensors))


def damped(tensor: Tensor, factor: Tensor) -> Tensor:
    """`tensor`, whose gradient is multiplied by `factor`, which broadcasts to it and gets none."""
    return _Damped.apply(tensor, factor)


class _Damped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.saved_tensors[0], None

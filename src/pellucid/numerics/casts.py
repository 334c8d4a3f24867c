"""Weights of mixed arithmetic, cast all at once: one kernel in place of one a layer, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.conv import _ConvNd


class CastConvolutions:
    """Runs a model with the weights and biases of all convolutions that learn in `dtype`: the numbers that autocast makes of them."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        layers = [module for module in model.modules() if isinstance(module, _ConvNd)]
        learning = [(module._parameters, key, p) for module in layers for key, p in module.named_parameters() if p.requires_grad]
        self.places = [
            (place, key) for place, key, _ in learning
        ]  # torch.func.functional_call looks each of them up anew, for milliseconds
        self.weights = tuple(p for _, _, p in learning)

    def __call__(self, images: Tensor) -> Any:
        if not self.weights:
            return self.model(images)
        try:
            self._place(_Cast.apply(self.dtype, *self.weights))
            return self.model(images)
        finally:
            self._place(self.weights)

    def _place(self, weights: Iterable[Any]) -> None:
        for (place, key), weight in zip(self.places, weights, strict=True):
            place[key] = weight


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtypes = [tensor.dtype for tensor in tensors]
        return _copied(tensors, [dtype] * len(tensors))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        known = [(gradient, dtype) for gradient, dtype in zip(gradients, ctx.dtypes, strict=True) if gradient is not None]
        found = iter(_copied(*zip(*known, strict=True)) if known else ())
        return None, *(None if gradient is None else next(found) for gradient in gradients)


def _copied(tensors: tuple[Tensor, ...], dtypes: list[torch.dtype] | tuple[torch.dtype, ...]) -> tuple[Tensor, ...]:
    made = [torch.empty_like(tensor, dtype=dtype) for tensor, dtype in zip(tensors, dtypes, strict=True)]
    torch._foreach_copy_(made, list(tensors))
    return tuple(made)

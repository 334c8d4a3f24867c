"""Parameters and floating-point operations, counted as the papers do."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import nn

from .attention import Attention
from .build import Detector


def count_parameters(model: nn.Module) -> int:
    """Number of scalars in all parameters."""
    return sum(p.numel() for p in model.parameters())


def count_flops(model: Detector, size: int = 640, attention: bool = False) -> float:
    """GFLOPs of one image of size x size: 2 x multiply-adds of convolutions, linear and transposed convolutions.

    `attention` adds the two matrix products of each attention block.
    """
    total = 0

    def weights(module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        nonlocal total
        positions = (inputs[0] if isinstance(module, nn.ConvTranspose2d) else output)[0, 0].numel()
        total += 2 * positions * cast(torch.Tensor, module.weight).numel()

    def products(module: Attention, inputs: tuple, output: torch.Tensor) -> None:
        nonlocal total
        total += 2 * output[0, 0].numel() ** 2 * module.heads * (module.key_dim + module.value_dim)

    hooks = []
    meta = copy.deepcopy(model).eval().to("meta")
    for module in meta.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            hooks.append(module.register_forward_hook(weights))
        elif attention and isinstance(module, Attention):
            hooks.append(module.register_forward_hook(products))
    with torch.no_grad():
        meta(torch.zeros(1, 3, size, size, device="meta"))
    return total / 1e9

"""`normed.silu_gradient` as one GPU kernel: x and the gradient are read once and nothing between is stored. Imported only on a GPU."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from . import normed
from .kernels import device_of

CELLS, CHANNELS = 4096, 256  # values, and at most how many channels of each cell, that one program looks at


@triton.jit
def _silu_gradient(gradient, x, vectors, result, cells, channels, CELLS: tl.constexpr, CHANNELS: tl.constexpr):
    mean, scale, weight, bias = vectors
    cell = tl.program_id(0).to(tl.int64) * CELLS + tl.arange(0, CELLS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    there = channel < channels
    factor = tl.load(scale + channel, mask=there, other=0.0) * tl.load(weight + channel, mask=there, other=0.0)
    offset = tl.load(bias + channel, mask=there, other=0.0) - tl.load(mean + channel, mask=there, other=0.0) * factor
    place = cell[:, None] * channels + channel[None, :]
    inside = (cell < cells)[:, None] & there[None, :]
    before = tl.load(x + place, mask=inside, other=0.0)
    normed = (before.to(tl.float32) * factor[None, :] + offset[None, :]).to(before.dtype).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(-normed))
    slope = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32) * share * (1.0 + normed * (1.0 - share))
    tl.store(result + place, slope.to(before.dtype), mask=inside)


def silu_gradient(gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As `normed.silu_gradient`, which does what the kernel does not: float64, and channels that do not lie side by side."""
    if x.dtype == torch.float64 or not x.is_contiguous(memory_format=torch.channels_last):
        return normed.silu_gradient(gradient, x, mean, scale, weight, bias)
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    result, channels = torch.empty_like(x), x.shape[1]
    wide = min(triton.next_power_of_2(channels), CHANNELS)
    cells, together = x.numel() // channels, CELLS // wide
    with device_of(x):
        grid = (triton.cdiv(cells, together), triton.cdiv(channels, wide))
        _silu_gradient[grid](gradient, x, (mean, scale, weight, bias), result, cells, channels, CELLS=together, CHANNELS=wide)
    return result


def probe() -> None:
    """Run once on a few values, so that what cannot be compiled is known before training begins."""
    x = torch.zeros(1, 8, 2, 2, device="cuda").to(memory_format=torch.channels_last)
    silu_gradient(x, x, *(torch.zeros(8, device="cuda") for _ in range(4)))

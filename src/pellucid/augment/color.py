"""Operations on colour alone, batched, on any device."""

from __future__ import annotations

import torch
from torch import Tensor


def shift_hsv(images: Tensor, color: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [0, 255] after `color` (B, 3): hue shift in turns, saturation gain, value gain; both gains are clamped."""
    turn, saturate, brighten = color[:, :, None, None].unbind(1)  # (B, 1, 1) each
    red, green, blue = images.unbind(1)
    top = images.amax(1)  # (B, H, W), the value
    chroma = top - images.amin(1)
    sector = torch.where(top == green, (blue - red) + 2 * chroma, (red - green) + 4 * chroma)
    sector = torch.where(top == red, green - blue, sector) / chroma.clamp(min=1e-6)
    hue = sector + turn * 6  # in sixths of a turn
    value = (top * brighten).clamp(max=255)
    spread = (chroma / top.clamp(min=1e-6) * saturate).clamp(max=1) * value
    return torch.stack([_channel(hue, value, spread, offset) for offset in (0, 4, 2)], 1)


def _channel(hue: Tensor, value: Tensor, spread: Tensor, offset: int) -> Tensor:
    """Red, green or blue (offset 0, 4, 2) as value less the part of `spread` that lies beyond its third of the circle."""
    near = ((hue + offset).remainder_(6).sub_(3).abs_().sub_(2)).neg_().clamp_(0, 1)  # 0 within a sixth of the hue, 1 beyond two
    return value - spread * near

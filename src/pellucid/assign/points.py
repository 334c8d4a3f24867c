"""Where the anchors are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def anchor_points(sizes: Sequence[tuple[int, int]], strides: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Centres (A, 2) in canvas pixels, ((i + 0.5) s, (j + 0.5) s), and strides (A,), level after level, row after row."""
    points, steps = [], []
    for (height, width), stride in zip(sizes, strides, strict=True):
        y, x = torch.meshgrid(torch.arange(height, device=device), torch.arange(width, device=device), indexing="ij")
        points.append((torch.stack((x, y), -1).reshape(-1, 2) + 0.5) * stride)
        steps.append(torch.full((height * width,), float(stride), device=device))
    return torch.cat(points), torch.cat(steps)

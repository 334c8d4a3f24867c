"""3x3 matrices that act on (x, y, 1) in pixels: build, compose, invert, apply; the letterbox; the batched warp of pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample


def translation(x: float, y: float) -> Tensor:
    """Matrix that moves points by (x, y) pixels."""
    return torch.tensor([[1, 0, x], [0, 1, y], [0, 0, 1]], dtype=torch.float64)


def scaling(x: float, y: float) -> Tensor:
    """Matrix that scales about the origin."""
    return torch.tensor([[x, 0, 0], [0, y, 0], [0, 0, 1]], dtype=torch.float64)


def rotation(radians: float) -> Tensor:
    """Matrix that turns from +x to +y (clockwise on screen) about the origin."""
    c, s = math.cos(radians), math.sin(radians)
    return torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)


def shear(x_radians: float, y_radians: float) -> Tensor:
    """Matrix x' = x + tan(a) y, y' = tan(b) x + y."""
    return torch.tensor([[1, math.tan(x_radians), 0], [math.tan(y_radians), 1, 0], [0, 0, 1]], dtype=torch.float64)


def compose(*matrices: Tensor) -> Tensor:
    """Product of matrices; the last is applied first, as in A @ B @ x."""
    result = matrices[0]
    for matrix in matrices[1:]:
        result = result @ matrix
    return result


def about(x: float, y: float, matrix: Tensor) -> Tensor:
    """`matrix` applied about the centre (x, y) in place of the origin."""
    return compose(translation(x, y), matrix, translation(-x, -y))


def transform_points(matrix: Tensor, points: Tensor) -> Tensor:
    """Points (..., 2) after the affine 3x3 `matrix`; dtype of the points."""
    (a, b, x), (c, d, y) = matrix[:2].tolist()
    across, down = points.unbind(-1)
    return torch.stack((across * a + down * b + x, across * c + down * d + y), -1)


@dataclass(frozen=True)
class Letterbox:
    """An image of height x width, resized to new_height x new_width and placed at (left, top) of a size x size canvas; all integers."""

    height: int
    width: int
    new_height: int
    new_width: int
    left: int
    top: int
    size: int

    @classmethod
    def fit(cls, height: int, width: int, size: int) -> Letterbox:
        """The largest placement that keeps the aspect ratio to the nearest pixel, centred."""
        new_height, new_width = fit_longest(height, width, size)
        return cls(height, width, new_height, new_width, (size - new_width) // 2, (size - new_height) // 2, size)

    def matrix(self) -> Tensor:
        """Original pixels -> canvas pixels."""
        return compose(translation(self.left, self.top), scaling(self.new_width / self.width, self.new_height / self.height))


def fit_longest(height: int, width: int, size: int) -> tuple[int, int]:
    """(height, width) scaled so that the longer side is `size`; no side below 1."""
    gain = size / max(height, width)
    return max(1, round(height * gain)), max(1, round(width * gain))


def invert(matrices: Tensor) -> Tensor:
    """Inverses (..., 3, 3) of affine matrices, element by element: nothing waits for the host or is rounded to TF32."""
    a, b, x = matrices[..., 0, :].unbind(-1)
    c, d, y = matrices[..., 1, :].unbind(-1)
    area = a * d - b * c
    zero = torch.zeros_like(a)
    flat = torch.stack((d, -b, b * y - d * x, -c, a, c * x - a * y, zero, zero, area), -1)
    return (flat / area[..., None]).unflatten(-1, (3, 3))


def sampling_grid(matrices: Tensor, height: int, width: int, size: int) -> Tensor:
    """Where grid_sample must look in (height, width) sources for outputs (B, size, size, 2) moved by `matrices` (B, 3, 3)."""
    inverse = invert(matrices)
    centres = torch.arange(size, device=matrices.device, dtype=matrices.dtype) + 0.5
    axes = []
    for axis, length in ((0, width), (1, height)):
        along_x, along_y, offset = (inverse[:, axis] * (2 / length)).unbind(-1)  # pixels -> grid_sample's [-1, 1]
        columns, rows = along_x[:, None] * centres, along_y[:, None] * centres + (offset - 1)[:, None]  # (B, size)
        axes.append(columns[:, None, :] + rows[:, :, None])
    return torch.stack(axes, -1)


def warp_images(images: Tensor, matrices: Tensor, size: int, fill: float = 114.0) -> Tensor:
    """Pixels of `images` (B, C, H, W) float moved by `matrices` (B, 3, 3), bilinear, to (B, C, size, size); outside is `fill`.

    `matrices` map source pixels to output pixels; the sampling point of output pixel i is its centre, i + 0.5.
    """
    grid = sampling_grid(matrices, images.shape[-2], images.shape[-1], size).to(images.dtype)
    return grid_sample(images - fill, grid, mode="bilinear", padding_mode="zeros", align_corners=False) + fill


def stack_matrices(matrices: Sequence[Tensor]) -> Tensor:
    """(B, 3, 3) float32 of a list of 3x3 matrices."""
    return torch.stack(list(matrices)).float()

"""Convolutional blocks of the backbone and the neck (arXiv 2606.03748 and its lineage; sizes forced by the published counts)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from ..numerics.normed import normed_silu


class BatchNorm(nn.BatchNorm2d):
    """BatchNorm2d that does not count its batches: the count is not used, and a kernel a layer costs time."""

    held = False  # keeps its statistics in training mode

    def forward(self, x: Tensor) -> Tensor:
        return batch_norm(x, *self._known(), self.weight, self.bias, self.training, self.momentum or 0.0, self.eps)

    def silu(self, x: Tensor) -> Tensor:
        """SiLU of the forward pass of training."""
        return normed_silu(x, self._known(), self.weight, self.bias, self.momentum or 0.0, self.eps)

    def _known(self) -> tuple[Tensor | None, Tensor | None]:
        return (None, None) if self.held and self.training else (self.running_mean, self.running_var)


@contextmanager
def statistics_held(module: nn.Module) -> Iterator[None]:
    """Within, a forward pass in training mode leaves the BatchNorm statistics as they are."""
    layers = [layer for layer in module.modules() if isinstance(layer, BatchNorm)]
    for layer in layers:
        layer.held = True
    try:
        yield
    finally:
        for layer in layers:
            layer.held = False


class ConvUnit(nn.Module):
    """Convolution without bias, BatchNorm, SiLU (or no activation); in training the last two are one, and their hooks are not called."""

    def __init__(self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = BatchNorm(c_out, eps=1e-3, momentum=0.03)
        self.act = nn.SiLU() if act else nn.Identity()  # in place it would copy its input for the backward

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if isinstance(self.bn, BatchNorm) and self.bn.training and isinstance(self.act, nn.SiLU):
            return self.bn.silu(x)
        return self.act(self.bn(x))


class ClassOutput(nn.Conv2d):
    """A 1x1 convolution to one channel a class, in the order of the names: what is learned for a class is known by its name."""

    def __init__(self, c_in: int, nc: int) -> None:
        super().__init__(c_in, nc, 1)


class Bottleneck(nn.Module):
    """Two 3x3 convolutions, c -> e c -> c, with the identity added."""

    def __init__(self, channels: int, expansion: float = 0.5) -> None:
        super().__init__()
        hidden = int(channels * expansion)
        self.conv1 = ConvUnit(channels, hidden, 3)
        self.conv2 = ConvUnit(hidden, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.conv1(x))


class C3k(nn.Module):
    """Two parallel 1x1 halves, one through two bottlenecks, joined by a 1x1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels // 2
        self.left = ConvUnit(channels, hidden)
        self.right = ConvUnit(channels, hidden)
        self.units = nn.Sequential(Bottleneck(hidden, 1.0), Bottleneck(hidden, 1.0))
        self.join = ConvUnit(2 * hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat((self.units(self.left(x)), self.right(x)), 1))


class C3k2(nn.Module):
    """Split in two halves, a chain of inner units on the second, all pieces joined by a 1x1."""

    def __init__(self, c_in: int, c_out: int, units: list[nn.Module], hidden: int) -> None:
        """`units` act on `hidden` channels each."""
        super().__init__()
        self.split = ConvUnit(c_in, 2 * hidden)
        self.units = nn.ModuleList(units)
        self.join = ConvUnit((2 + len(units)) * hidden, c_out)

    def forward(self, x: Tensor) -> Tensor:
        pieces = list(self.split(x).chunk(2, 1))
        for unit in self.units:
            pieces.append(unit(pieces[-1]))
        return self.join(torch.cat(pieces, 1))


class SPPF(nn.Module):
    """Three 5x5 max-pools in series, concatenated and joined, with the input added; the first 1x1 has no activation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = ConvUnit(channels, channels // 2, act=False)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.join = ConvUnit(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.reduce(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return x + self.join(torch.cat(maps, 1))

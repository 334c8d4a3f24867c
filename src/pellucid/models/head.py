"""The two branches of the head: one-to-many, and one-to-one on detached features. Their outputs are stated by the task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import cast

import torch
from torch import Tensor, nn

from ..numerics.lanes import side_by_side
from ..rules import STRIDES
from .blocks import ClassOutput, ConvUnit


@dataclass(frozen=True)
class Stem:
    """Per-anchor outputs that share two 3x3 convolutions of width max(P3 / 4, floor)."""

    outputs: Mapping[str, int]  # name -> channels
    floor: int
    bias: Mapping[str, float] = field(default_factory=dict)  # initial bias of an output, default 0
    training_only: tuple[str, ...] = ()  # outputs that `fuse` drops


class StemLevel(nn.Module):
    """One stem at one level: (B, c_in, h, w) -> {name: (B, h w, channels)}."""

    def __init__(self, stem: Stem, c_in: int, hidden: int) -> None:
        super().__init__()
        self.body = nn.Sequential(ConvUnit(c_in, hidden, 3), ConvUnit(hidden, hidden, 3))
        self.last = nn.ModuleDict({name: nn.Conv2d(hidden, channels, 1) for name, channels in stem.outputs.items()})
        for name, conv in self.last.items():
            nn.init.constant_(cast(Tensor, conv.bias), stem.bias.get(name, 0.0))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.body(x)
        return {name: _rows(conv(x)) for name, conv in self.last.items()}


def class_level(c_in: int, hidden: int, nc: int, stride: int) -> nn.Sequential:
    """Class logits of one level; the bias starts at a prior of about 5 objects in a 640 px image."""
    last = ClassOutput(hidden, nc)
    nn.init.constant_(cast(Tensor, last.bias), math.log(5 / nc / (640 / stride) ** 2))
    first = nn.Sequential(ConvUnit(c_in, c_in, 3, groups=c_in), ConvUnit(c_in, hidden))
    second = nn.Sequential(ConvUnit(hidden, hidden, 3, groups=hidden), ConvUnit(hidden, hidden))
    return nn.Sequential(first, second, last)


class Branch(nn.Module):
    """One branch over all levels: maps -> {"cls": (B, A, nc), "box": (B, A, 4), ...}, raw."""

    def __init__(self, widths: Sequence[int], nc: int, stems: Sequence[Stem]) -> None:
        super().__init__()
        hidden = max(widths[0], min(nc, 100))
        self.classes = nn.ModuleList(class_level(c, hidden, nc, stride) for c, stride in zip(widths, STRIDES, strict=True))
        self.stems = nn.ModuleList(nn.ModuleList(StemLevel(stem, c, max(widths[0] // 4, stem.floor)) for c in widths) for stem in stems)

    def forward(self, maps: Sequence[Tensor]) -> dict[str, Tensor]:
        chains = [(level, x) for levels in (self.classes, *self.stems) for level, x in zip(cast(nn.ModuleList, levels), maps, strict=True)]
        found = side_by_side([partial(_run, level, x) for level, x in chains], chain(maps, self.parameters()), dict.values)
        outputs: dict[str, Tensor] = {}
        for start in range(0, len(found), len(maps)):  # the levels of one kind of output
            parts = found[start : start + len(maps)]
            outputs |= {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}
        return outputs

    def drop(self, names: set[str]) -> None:
        """Remove outputs that only training needs."""
        for level in (module for module in self.stems.modules() if isinstance(module, StemLevel)):
            for name in names & set(level.last):
                del level.last[name]


def _run(level: nn.Module, x: Tensor) -> dict[str, Tensor]:
    found = level(x)
    return {"cls": _rows(found)} if isinstance(found, Tensor) else found


def _rows(x: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, h w, C); a view where the memory is channels-last."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)

"""Top-down, then bottom-up: the three maps of the backbone exchange what they know."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ..numerics.islands import autocast_off
from .attention import PSABlock
from .backbone import c3k2
from .blocks import Bottleneck, C3k2, ConvUnit
from .scales import Scale


class Neck(nn.Module):
    """Layers 11 to 22 of the published table; widths (P3, P4, P5) in `widths`."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        c256, c512, c1024 = (scale.channels(base) for base in (256, 512, 1024))
        n, hidden = scale.repeats, c1024 // 2
        self.widths = (c256, c512, c1024)
        self.merge4 = c3k2(c1024 + c512, c512, n, 0.5, True)
        self.out3 = c3k2(c512 + c512, c256, n, 0.5, True)
        self.down3 = ConvUnit(c256, c256, 3, 2)
        self.out4 = c3k2(c256 + c512, c512, n, 0.5, True)
        self.down4 = ConvUnit(c512, c512, 3, 2)
        self.out5 = C3k2(c512 + c1024, c1024, [nn.Sequential(Bottleneck(hidden), PSABlock(hidden))], hidden)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        p3, p4, p5 = maps
        m4 = self.merge4(torch.cat((_double(p5), p4), 1))
        o3 = self.out3(torch.cat((_double(m4), p3), 1))
        o4 = self.out4(torch.cat((self.down3(o3), m4), 1))
        o5 = self.out5(torch.cat((self.down4(o4), p5), 1))
        return [o3, o4, o5]


def _double(x: Tensor) -> Tensor:
    with autocast_off(x.device):  # which would copy values to float32 that are only repeated
        return interpolate(x, scale_factor=2.0, mode="nearest")

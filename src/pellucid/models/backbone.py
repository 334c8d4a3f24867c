"""Image -> three maps at strides 8, 16 and 32."""

from __future__ import annotations

from torch import Tensor, nn

from .attention import C2PSA
from .blocks import SPPF, Bottleneck, C3k, C3k2, ConvUnit
from .scales import Scale

TAPS = (4, 6, 10)  # layers that feed the neck: P3, P4, P5


def c3k2(c_in: int, c_out: int, repeats: int, expansion: float, deep: bool) -> C3k2:
    """C3k2 whose inner units are C3k if `deep`, else bottlenecks."""
    hidden = int(c_out * expansion)
    return C3k2(c_in, c_out, [C3k(hidden) if deep else Bottleneck(hidden) for _ in range(repeats)], hidden)


class Backbone(nn.Module):
    """Layers 0 to 10 of the published table; (B, 3, H, W) -> maps at strides 8, 16, 32."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        c64, c128, c256, c512, c1024 = (scale.channels(base) for base in (64, 128, 256, 512, 1024))
        n, deep = scale.repeats, scale.deep
        self.layers = nn.ModuleList(
            (
                ConvUnit(3, c64, 3, 2),
                ConvUnit(c64, c128, 3, 2),
                c3k2(c128, c256, n, 0.25, deep),
                ConvUnit(c256, c256, 3, 2),
                c3k2(c256, c512, n, 0.25, deep),
                ConvUnit(c512, c512, 3, 2),
                c3k2(c512, c512, n, 0.5, True),
                ConvUnit(c512, c1024, 3, 2),
                c3k2(c1024, c1024, n, 0.5, True),
                SPPF(c1024),
                C2PSA(c1024, n),
            )
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        taps = []
        for position, layer in enumerate(self.layers):
            x = layer(x)
            if position in TAPS:
                taps.append(x)
        return taps

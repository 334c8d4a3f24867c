"""The five sizes of one architecture."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Depth and width multipliers, the cap on base channels, and whether the first stages use C3k units."""

    depth: float
    width: float
    max_channels: int
    deep: bool

    def channels(self, base: int) -> int:
        """Channels of a layer of `base` channels, rounded up to a multiple of 8."""
        return math.ceil(min(base, self.max_channels) * self.width / 8) * 8

    @property
    def repeats(self) -> int:
        return max(1, round(2 * self.depth))


SCALES = {
    "n": Scale(0.50, 0.25, 1024, deep=False),
    "s": Scale(0.50, 0.50, 1024, deep=False),
    "m": Scale(0.50, 1.00, 512, deep=True),
    "l": Scale(1.00, 1.00, 512, deep=True),
    "x": Scale(1.00, 1.50, 512, deep=True),
}

"""Gradient accumulation that equals the large batch: what the losses are divided by is known only when all parts have been seen.

Where every loss of a branch has one divisor, the sum of q, the parts' gradients are corrected at the end: the one-to-one branch reads
detached features, so its parameters feel its loss alone, and all others the one-to-many loss alone. Where a task has other divisors
too, the parts are kept and looked at once, without a gradient, before the first of them is learned from.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..optim.gradients import FlatGradients
from .criterion import Both, Counts
from .ranks import add_up, world


class Window:
    """The parts of one large batch, from its first backward to its optimizer step."""

    def __init__(self, size: int, names: Sequence[str], known: bool = False) -> None:
        self.size = size  # parts in a full window
        self.known = known  # whether the counts of the whole are known before its first part is learned from
        self.of_one = [name.startswith("one.") for name in names]
        self.reset()

    @property
    def full(self) -> bool:
        return self.parts == self.size

    def reset(self) -> None:
        self.parts = 0
        self.images = self.first = 0  # of all parts so far, and of the first
        self.reference: Both | None = None  # of the first part: what every part is divided by meanwhile
        self.sums_of_q: tuple[Tensor, Tensor] | None = None

    def note(self, counts: Both, images: int) -> None:
        """Another part of so many images was learned from, divided by `reference`; the first by its own counts."""
        self.parts += 1
        if self.known:
            return
        of_q = (counts[0]["cls"], counts[1]["cls"])
        if self.reference is None or self.sums_of_q is None:
            self.reference, self.sums_of_q, self.first = counts, of_q, images
        else:
            self.sums_of_q = (self.sums_of_q[0] + of_q[0], self.sums_of_q[1] + of_q[1])
        self.images += images

    def correct(self, gradients: FlatGradients) -> None:
        """Turn the sum of the parts' gradients into this rank's share of the gradient of the large batch of all ranks."""
        if self.parts * world() < 2 or self.reference is None or self.sums_of_q is None:
            return
        larger = self.images * world() / self.first
        sums_of_q = add_up(torch.stack(self.sums_of_q))
        for branch, members in ((0, [not one for one in self.of_one]), (1, self.of_one)):
            factor = larger * self.reference[branch]["cls"].clamp(min=1) / sums_of_q[branch].clamp(min=1)
            gradients.scale(members, factor)


def summed(counts: Sequence[Counts]) -> Counts:
    """What the losses of the whole are divided by, from those of its parts."""
    return {name: sum((part[name] for part in counts[1:]), counts[0][name]) for name in counts[0]}

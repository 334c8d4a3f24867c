"""Gradient accumulation that equals the large batch: the sums of q are known only at the end, so the gradient is corrected there.

The one-to-one branch reads detached features, so its parameters feel its loss alone, and all others the one-to-many loss alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..optim.gradients import FlatGradients
from .criterion import BranchLoss, combine


class Window:
    """The parts of one large batch, from its first backward to its optimizer step."""

    def __init__(self, size: int, names: Sequence[str]) -> None:
        self.size = size  # parts in a full window
        self.of_one = [name.startswith("one.") for name in names]
        self.reset()

    @property
    def full(self) -> bool:
        return self.parts == self.size

    def reset(self) -> None:
        self.parts = 0
        self.images = 0
        self.reference: tuple[Tensor, Tensor] | None = None  # sums of q of the first part: what every part is divided by meanwhile
        self.weights: tuple[Tensor, Tensor] | None = None

    def add(self, many: BranchLoss, one: BranchLoss, share: Tensor, images: int) -> Tensor:
        """The loss to differentiate for the next part."""
        weights = (many.weight.detach(), one.weight.detach())
        if self.reference is None or self.weights is None:
            self.reference, self.weights, self.first = weights, weights, images
        else:
            self.weights = (self.weights[0] + weights[0], self.weights[1] + weights[1])
        self.parts += 1
        self.images += images
        return combine(many, one, share, self.first, self.reference)

    def correct(self, gradients: FlatGradients) -> None:
        """Turn the sum of the parts' gradients into the gradient of the large batch."""
        if self.parts < 2 or self.reference is None or self.weights is None:
            return
        larger = self.images / self.first
        for branch, members in ((0, [not one for one in self.of_one]), (1, self.of_one)):
            factor = larger * self.reference[branch].clamp(min=1) / self.weights[branch].clamp(min=1)
            gradients.scale(members, factor)

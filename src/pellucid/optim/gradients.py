"""All gradients in one vector: accumulation, unscaling, the norm, the clip and the check for infinities are a kernel each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .flat import Flat


class FlatGradients:
    """The gradient of a list of parameters, summed over backward passes until `release`."""

    def __init__(self, params: Sequence[nn.Parameter]) -> None:
        self.params = list(params)
        self.flat = Flat(self.params)

    def collect(self) -> None:
        """Add what the last backward left in `.grad`, and take it away."""
        active = [(view, p.grad) for view, p in zip(self.flat.views, self.params, strict=True) if p.grad is not None]
        torch._foreach_add_([view for view, _ in active], [grad for _, grad in active])
        for p in self.params:
            p.grad = None

    def scale(self, members: Sequence[bool], factor: Tensor) -> None:
        """Multiply the gradients of the chosen parameters by a () tensor."""
        torch._foreach_mul_([view for view, chosen in zip(self.flat.views, members, strict=True) if chosen], factor)

    def finish(self, clip: float, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Divide by `scale`, clip the norm to `clip` (0: no clip); returns (norm, found_inf), () float tensors.

        Where anything is not finite the whole gradient becomes 0 and found_inf is 1. Afterwards every `.grad` is a view of the vector.
        """
        vector = self.flat.vector.div_(scale)
        norm = torch.linalg.vector_norm(vector)
        finite = torch.isfinite(norm)
        factor = (clip / (norm + 1e-6)).clamp(max=1.0) if clip > 0 else torch.ones_like(norm)
        vector.copy_(torch.where(finite, vector * factor, 0.0))
        for view, p in zip(self.flat.views, self.params, strict=True):
            p.grad = view
        return norm, 1.0 - finite.float()

    def release(self) -> None:
        """Start again from zero."""
        self.flat.vector.zero_()
        for p in self.params:
            p.grad = None

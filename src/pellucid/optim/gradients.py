"""All gradients in one flat buffer: accumulation, unscaling, the norm, the clip and the check for infinities are each one kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatGradients:
    """The gradient of a list of parameters, accumulated over backward passes until `release`."""

    def __init__(self, params: Sequence[nn.Parameter]) -> None:
        self.params = list(params)
        self.flat = torch.zeros(sum(p.numel() for p in self.params), device=self.params[0].device)
        self.views = [part.view(p.shape) for part, p in zip(self.flat.split([p.numel() for p in self.params]), self.params, strict=True)]

    def collect(self) -> None:
        """Add what the last backward left in `.grad`, and take it away."""
        active = [(view, p) for view, p in zip(self.views, self.params, strict=True) if p.grad is not None]
        torch._foreach_add_([view for view, _ in active], [p.grad for _, p in active])
        for p in self.params:
            p.grad = None

    def finish(self, clip: float, scale: Tensor | float = 1.0) -> tuple[Tensor, Tensor]:
        """Divide by `scale`, clip the norm to `clip` (0: no clip); returns (norm, found_inf), () float tensors.

        Where anything is not finite the whole gradient becomes 0 and found_inf is 1. Afterwards every `.grad` is a view of the buffer.
        """
        self.flat.div_(scale)
        norm = torch.linalg.vector_norm(self.flat)
        finite = torch.isfinite(norm)
        factor = (clip / (norm + 1e-6)).clamp(max=1.0) if clip > 0 else torch.ones_like(norm)
        self.flat.copy_(torch.where(finite, self.flat * factor, 0.0))
        for view, p in zip(self.views, self.params, strict=True):
            p.grad = view
        return norm, 1.0 - finite.float()

    def release(self) -> None:
        """Start again from zero."""
        self.flat.zero_()
        for p in self.params:
            p.grad = None

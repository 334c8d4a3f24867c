"""Learning rate, momentum and branch weight as functions of how far training has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up over `warmup` optimizer steps, then linear decay from 1 to `final` over all `steps`."""

    steps: int
    warmup: int
    final: float = 0.01
    momentum: float = 0.937
    warmup_momentum: float = 0.8

    def rate(self, step: int, start: float = 0.0) -> float:
        """Factor on the base learning rate at optimizer step 0, 1, ...; warm-up begins at the factor `start`."""
        planned = 1 - (1 - self.final) * min(step / max(self.steps, 1), 1.0)
        return planned if step >= self.warmup else start + (planned - start) * (step + 1) / (self.warmup + 1)

    def momentum_at(self, step: int) -> float:
        """Momentum at optimizer step 0, 1, ..."""
        if step >= self.warmup:
            return self.momentum
        return self.warmup_momentum + (self.momentum - self.warmup_momentum) * (step + 1) / (self.warmup + 1)


def branch_share(epoch: int, epochs: int, start: float = 0.8, end: float = 0.1) -> float:
    """Weight of the one-to-many branch in epoch 0 ... epochs - 1 (arXiv 2606.03748, Eq. 3)."""
    return max(1 - epoch / max(epochs - 1, 1), 0.0) * (start - end) + end

"""The loss scale of float16 training, on the device: no host synchronisation."""

from __future__ import annotations

import torch
from torch import Tensor


class LossScale:
    """Doubles after `interval` finite steps in a row, halves after a step with infinities; a () tensor that a captured step can read.

    It is the scale of the mean loss of an image. The objective is a sum over images, whose gradients would otherwise overflow at the
    first steps of large batches, where the sum of q is still below 1.
    """

    def __init__(self, device: torch.device | str, enabled: bool, start: float = 256.0, interval: int = 2000) -> None:
        self.enabled, self.interval = enabled, interval
        self.scale = torch.full((), start if enabled else 1.0, device=device)
        self.good = torch.zeros((), device=device)

    def of_sum(self, images: int) -> Tensor:
        """The factor for a loss that is a sum over so many images, ()."""
        return self.scale / images if self.enabled else self.scale

    def update(self, found_inf: Tensor) -> None:
        """After a step; found_inf is 1 where it was skipped."""
        if not self.enabled:
            return
        good = torch.where(found_inf > 0, 0.0, self.good + 1)
        grown = good >= self.interval
        factor = torch.where(found_inf > 0, 0.5, torch.where(grown, 2.0, 1.0))
        self.scale.copy_((self.scale * factor).clamp(max=2.0**24))
        self.good.copy_(torch.where(grown, 0.0, good))

    def state_dict(self) -> dict[str, Tensor]:
        return {"scale": self.scale, "good": self.good}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.scale.copy_(state["scale"])
        self.good.copy_(state["good"])

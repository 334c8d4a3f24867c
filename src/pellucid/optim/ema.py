"""An exponential moving average of a model, the one that is scored and saved."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Ema:
    """Averages of all parameters and float buffers, with decay d (1 - exp(-n / ramp)) at the n-th update; other buffers are copied."""

    def __init__(self, model: nn.Module, decay: float = 0.9999, ramp: float = 2000.0) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.ramp = decay, ramp
        self.updates = torch.zeros((), device=next(model.parameters()).device)
        self._pairs: tuple[list[Tensor], ...] | None = None

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the averages toward `model`; once an optimizer step."""
        averages, sources, copies, originals = self._matched(model)
        self.updates += 1
        decay = self.decay * (1 - torch.exp(-self.updates / self.ramp))
        torch._foreach_mul_(averages, decay)
        torch._foreach_add_(averages, torch._foreach_mul(sources, 1 - decay))
        torch._foreach_copy_(copies, originals)

    def _matched(self, model: nn.Module) -> tuple[list[Tensor], ...]:
        if self._pairs is None:
            own, other = self.model.state_dict(), model.state_dict()
            floats = [name for name, value in own.items() if value.is_floating_point()]
            rest = [name for name in own if name not in set(floats)]
            self._pairs = ([own[n] for n in floats], [other[n] for n in floats], [own[n] for n in rest], [other[n] for n in rest])
        return self._pairs

    def state_dict(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.updates.copy_(state["updates"])

"""Many parameters as one vector, so that one kernel serves them all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Flat:
    """A float32 vector with one view per parameter, each of the parameter's shape and strides: memory order is the parameter's own."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.vector = torch.zeros(sum(p.numel() for p in params), device=params[0].device)
        self.views: list[Tensor] = []
        offset = 0
        for p in params:
            self.views.append(self.vector.as_strided(p.shape, p.stride(), offset))
            offset += p.numel()

    def fill(self, tensors: Sequence[Tensor]) -> Tensor:
        """The vector, holding a copy of `tensors`."""
        torch._foreach_copy_(self.views, list(tensors))
        return self.vector

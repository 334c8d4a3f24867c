"""Several processes that train as one: what is summed over them.

Each rank has its own pictures, as many as every other. What the losses are divided by is that of all of them together, so the sum of the
ranks' gradients is the gradient of the large batch: one vector is summed once a window, and nothing else wraps the module. BatchNorm
statistics are those of each rank's own pictures, averaged before anything is scored or saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from .criterion import Both


def world() -> int:
    """Number of processes that train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def add_up(tensor: Tensor) -> Tensor:
    """The sum over all ranks, written into `tensor`."""
    if world() > 1:
        distributed.all_reduce(tensor)
    return tensor


def average(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over all ranks."""
    if world() > 1:
        flat = add_up(torch.cat([tensor.flatten() for tensor in tensors])) / world()
        for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(mean.view_as(tensor))


def of_all(counts: Both) -> Both:
    """Counts of the batch of all ranks together, from those of this rank's part."""
    if world() == 1:
        return counts
    whole = iter(add_up(torch.stack([value.double() for part in counts for value in part.values()])).unbind())
    many, one = ({name: next(whole).to(value.dtype) for name, value in part.items()} for part in counts)
    return many, one


def gathered(state: Any) -> list[Any]:
    """What every rank holds, on every rank."""
    if world() == 1:
        return [state]
    states: list[Any] = [None] * world()
    distributed.all_gather_object(states, state)
    return states

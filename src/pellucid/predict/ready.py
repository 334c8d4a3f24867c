"""The network that answers, kept from call to call: folding BatchNorm costs several times what looking at a picture does."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..models.build import Detector


@dataclass(frozen=True)
class _Kept:
    """A fused copy and what it was made of."""

    parts: list[Any]
    ends: tuple[Tensor, Tensor]
    network: nn.Module


_KEPT: WeakKeyDictionary[Detector, _Kept] = WeakKeyDictionary()  # the last of each detector


def ready(model: nn.Module, branches: str, device: torch.device) -> nn.Module:
    """The model on its device, of a detector `fuse(branches)`: made anew only where its weights, modules or hooks have changed."""
    if not isinstance(model, Detector):
        return model.to(device).eval()
    parts = [branches, device]
    if not _note(model, parts):
        return model.fuse(branches).to(device)
    kept = _KEPT.get(model)
    if kept is None or kept.parts != parts or not all(map(torch.equal, kept.ends, _ends(model))):
        kept = _KEPT[model] = _Kept(parts, _ends(model), model.fuse(branches).to(device))
    return kept.network


def _note(module: nn.Module, parts: list[Any]) -> bool:
    """Add what tells a change of the module or its children; False where changes of a tensor are not counted, as of inference tensors."""
    parts.append((id(module), len(module._forward_hooks), len(module._forward_pre_hooks)))
    for tensor in chain(module._parameters.values(), module._buffers.values()):
        if tensor is not None:
            if tensor.is_inference():
                return False
            parts.append((tensor.data_ptr(), tensor._version))
    return all(_note(child, parts) for child in module._modules.values() if child is not None)


def _ends(model: Detector) -> tuple[Tensor, Tensor]:
    """The first and the last weights: a change through `.data`, which is not counted, hardly leaves out both."""
    first, last = next(model.parameters()), [*model.one.parameters()][-1]
    return first.detach().clone(), last.detach().clone()

"""GPU kernels, where they can be compiled."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from ..errors import PellucidWarning


@cache
def compiled(module: str, work: str) -> ModuleType | None:
    """The kernels of a module, which its `probe` has tried; None, with one warning, where Triton or a C compiler is missing."""
    try:
        kernels = import_module(module)
        kernels.probe()
    except Exception as error:  # whatever a missing part of the tool chain raises
        reason = str(error).strip().split("\n")[0][:120]
        found = f"{type(error).__name__} ({reason})"
        warnings.warn(PellucidWarning(f"{work}: expected Triton and a C compiler, got {found}; training is slower"), stacklevel=2)
        return None
    return kernels


def device_of(tensor: Tensor) -> AbstractContextManager:
    """Where a kernel on `tensor` is launched: not on the current device, if that is another."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()

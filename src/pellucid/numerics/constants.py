"""Small tensors of fixed numbers that lie on the device already: a copy from the host inside a step would hold it up."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """`values` (n,) on `device`, made once; never write into it."""
    with torch.inference_mode(False):
        return torch.tensor(values, device=device, dtype=dtype)

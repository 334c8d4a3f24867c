"""Regions that run in full precision whatever surrounds them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def autocast_off(device: torch.device) -> AbstractContextManager:
    """A region in which autocast is off; on a device without autocast (meta) there is nothing to turn off."""
    return torch.autocast(device.type, enabled=False) if torch.amp.is_autocast_available(device.type) else nullcontext()

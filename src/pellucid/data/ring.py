"""Shared memory that workers write their batches into again and again: no new pages, no copy in the trainer, pinned where there is a GPU.

Each worker has `depth` slots and takes them in turn. A loader hands out the batches of its workers in turn and asks for no more than
`depth - 2` of each ahead, so a slot is written again only after its batch and the one after it have been handed out.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from ..types import Packed, Place, Sample
from .cache import available_memory

SHARE = 8  # a ring takes at most this part of the memory that is free
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_LARGE = 1 << 30


_ALIGNED = 64  # bytes; every tensor starts at a multiple


class Ring:
    """Slots of `capacity` bytes for every worker; made before the workers fork."""

    def __init__(self, workers: int, depth: int, capacity: int, pinned: bool) -> None:
        self.workers, self.depth, self.capacity = workers, depth, -(-capacity // mmap.PAGESIZE) * mmap.PAGESIZE
        self.pixels = torch.frombuffer(mmap.mmap(-1, workers * depth * self.capacity), dtype=torch.uint8)
        self.pinned = pinned
        self._registered = False
        self._taken = 0  # slots, in the worker
        self._copied: list[torch.cuda.Event] = []  # by the device, of the last two batches

    @classmethod
    def fits(cls, workers: int, depth: int, capacity: int) -> bool:
        """Whether so much memory may be held."""
        return workers * depth * capacity * SHARE <= available_memory()

    def slot(self) -> Slot | None:
        """In a worker: where the next batch goes; None outside of one."""
        info = get_worker_info()
        if info is None:
            return None
        start = (info.id * self.depth + self._taken % self.depth) * self.capacity
        self._taken += 1
        return Slot(self.pixels[start : start + self.capacity], start)

    def fetch(self, packed: Packed) -> Packed:
        """In the trainer: the batch with its tensors; they stay as they are until the next batch but one is asked for."""
        if self.pinned:
            self._register()
        return packed.replaced(self._found)

    def _found(self, leaf: Tensor | Place) -> Tensor:
        if isinstance(leaf, Tensor):
            return leaf.pin_memory() if self.pinned else leaf
        size = leaf.dtype.itemsize * math.prod(leaf.shape)
        return self.pixels[leaf.start : leaf.start + size].view(leaf.dtype).view(leaf.shape)

    def release(self) -> None:
        """The batch handed out last has been used up; returns when the one before it has reached the device."""
        if self.pinned:
            event = torch.cuda.Event()
            event.record()
            self._copied = [*self._copied[-1:], event]
            self._copied[0].synchronize()

    def drain(self) -> None:
        """All batches handed out so far have reached the device: the slots may be written in a new order."""
        if self.pinned:
            torch.cuda.synchronize()

    def _register(self) -> None:
        """Pin the memory, so that copies to the device run beside everything else."""
        if not self._registered:
            torch.cuda.check_error(int(torch.cuda.cudart().cudaHostRegister(self.pixels.data_ptr(), self.pixels.numel(), 0)))
            self._registered = True

    def __del__(self) -> None:
        if self._registered:
            torch.cuda.cudart().cudaHostUnregister(self.pixels.data_ptr())


@dataclass
class Slot:
    """The memory for one batch, filled from its start on."""

    memory: Tensor  # (capacity,) uint8
    start: int  # of the memory in the ring
    used: int = 0

    def room(self, shape: tuple[int, int, int]) -> np.ndarray:
        """Pixels (h, w, 3) right behind those taken before; memory elsewhere where they do not fit."""
        end = self.used + math.prod(shape)
        if end > len(self.memory):
            return np.empty(shape, np.uint8)
        taken = self.memory[self.used : end].numpy().reshape(shape)
        self.used = end
        return taken

    def pixels(self, parts: Sequence[Tensor]) -> Tensor | None:
        """All of `parts` end to end from the slot's start, where those that got their room here lie already; None if they do not fit."""
        at = 0
        for part in parts:
            if at == self.used and part.data_ptr() != self.memory.data_ptr() + at and at + part.numel() <= len(self.memory):
                self.room((part.shape[0], part.shape[1], 3))[:] = part.numpy()
            elif part.data_ptr() != self.memory.data_ptr() + at:
                self.used = 0
                return None
            at += part.numel()
        self.used = -(-at // _ALIGNED) * _ALIGNED
        return self.memory[:at]

    def take(self, size: int) -> Tensor | None:
        """The next `size` bytes, or None where they do not fit."""
        if self.used + size > len(self.memory):
            return None
        taken = self.memory[self.used : self.used + size]
        self.used += -(-size // _ALIGNED) * _ALIGNED
        return taken

    def seal(self, packed: Packed) -> Packed:
        """The batch with its tensors in this memory, as the places where they are; what does not fit stays a tensor."""
        return packed.replaced(self._placed)

    def _placed(self, leaf: Tensor | Place) -> Tensor | Place:
        if isinstance(leaf, Place):
            return leaf
        offset = leaf.data_ptr() - self.memory.data_ptr()
        if not 0 <= offset < len(self.memory):
            offset = self.used
            taken = self.take(leaf.nbytes)
            if taken is None:
                return leaf
            taken.view(leaf.dtype).view(leaf.shape).copy_(leaf)
        return Place(self.start + offset, tuple(leaf.shape), leaf.dtype)


class Drawn(list[Sample]):
    """Samples of one batch, whose pixels lie in `slot` as far as they fit."""

    def __init__(self, samples: Iterable[Sample], slot: Slot | None) -> None:
        super().__init__(samples)
        self.slot = slot


def keep_freed_memory() -> None:
    """Let this process use the memory of large arrays again in place of asking the system for new pages each time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, _LARGE)

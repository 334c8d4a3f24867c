"""Independent work side by side in a recording: pieces on streams of their own, so that replay fills the device with several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
LANES = 2  # of one fork, the stream forked from among them; each has memory of its own
_STREAMS: dict[torch.device, Streams] = {}


def side_by_side(works: Sequence[Callable[[], T]], reads: Iterable[Tensor], gives: Callable[[T], Iterable[Tensor]]) -> list[T]:
    """The results of works that do not need each other, one after another; while a CUDA graph is recorded, in lanes.

    `reads` are the tensors that they share with what comes before, `gives` the tensors of a result: their memory is not used again
    before every lane is done with it. The kernels, and so the numbers, are the same either way. A work may fork again.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return [work() for work in works]
    main = torch.cuda.current_stream()
    with _STREAMS.setdefault(main.device, Streams()).taken(len(works[1:LANES]), main.device) as lanes:
        shared = list(reads)
        for lane in lanes:
            lane.wait_stream(main)
            for tensor in shared:
                tensor.record_stream(lane)
        results = []
        for number, work in enumerate(works):
            with torch.cuda.stream([main, *lanes][number % (len(lanes) + 1)]):
                results.append(work())
        for lane in lanes:
            main.wait_stream(lane)
    for result in results:
        for tensor in gives(result):
            tensor.record_stream(main)
    return results


class Streams:
    """Streams of a device; those that a fork has had are free again when the outermost fork has ended, for works of forks run at once."""

    def __init__(self) -> None:
        self._made: list[torch.cuda.Stream] = []
        self._used = self._depth = 0

    @contextmanager
    def taken(self, count: int, device: torch.device) -> Iterator[list[torch.cuda.Stream]]:
        while len(self._made) < self._used + count:
            self._made.append(torch.cuda.Stream(device))
        streams = self._made[self._used : self._used + count]
        self._used += count
        self._depth += 1
        try:
            yield streams
        finally:
            self._depth -= 1
            self._used = self._used if self._depth else 0

"""Reading ahead: threads read the next items while the model looks at the last ones; order is kept, and memory bounded."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
WORKERS = min(4, os.cpu_count() or 1)
_WAKE = 0.1  # seconds after which a thread that waits for room looks whether it is still wanted
_PARTING = 1.0  # seconds that a reader who leaves waits for a source that does not answer


def read_ahead(items: Iterator[T], work: Callable[[T], R], ahead: int, workers: int = WORKERS) -> Generator[Future[R]]:
    """Of each item, in order, a future of `work(item)`: its `result()` gives what came out or raises what went wrong there.

    At most `ahead` + 1 items are begun before they are asked for. What `items` itself raises comes at its place and ends the stream.
    All threads have ended when the iterator ends. Closed earlier, it begins nothing more and waits for nothing that hangs.
    """
    ready: Queue[Future[R] | None] = Queue(ahead)
    stop = Event()
    pool = ThreadPoolExecutor(workers, "pellucid-read")
    thread = Thread(target=_produce, args=(items, work, pool, ready, stop), name="pellucid-sources", daemon=True)
    thread.start()
    left = True
    try:
        while (future := ready.get()) is not None:
            yield future
        left = False
    finally:
        stop.set()
        thread.join(_PARTING if left else None)
        pool.shutdown(wait=not left, cancel_futures=left)


def _produce(items: Iterator[T], work: Callable[[T], R], pool: ThreadPoolExecutor, ready: Queue, stop: Event) -> None:
    try:
        for item in items:
            if not _put(ready, pool.submit(work, item), stop):
                break
    except BaseException as error:
        failed: Future[R] = Future()
        failed.set_exception(error)
        _put(ready, failed, stop)
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()
        _put(ready, None, stop)


def _put(ready: Queue, item: Future | None, stop: Event) -> bool:
    """Whether there came room for `item` before the reader left."""
    while not stop.is_set():
        with suppress(Full):
            ready.put(item, timeout=_WAKE)
            return True
    return False

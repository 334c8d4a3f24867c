"""Float32 products in float32: TF32 off for a while, without a trace afterwards.

PyTorch has two ways to say it, `allow_tf32` with `set_float32_matmul_precision` and, newer, `fp32_precision`; the getters of the first
raise where the second was used against them. So each place is changed in the way in which its present state was set, and only where
TF32 is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch


def tf32_is_on() -> bool:
    """Whether matrix products, convolutions or recurrent layers in float32 may be computed in TF32 on a GPU."""
    return any(_on(place) for place in (_matmul(), *_cudnn()))


@contextmanager
def tf32_off() -> Iterator[None]:
    """A region in which no float32 product of a GPU is computed in TF32; afterwards every setting is as it was."""
    with ExitStack() as undo:
        if _on(_matmul()):
            _turn_off_matmul(undo)
        if any(_on(place) for place in _cudnn()):
            _turn_off_cudnn(undo)
        yield


def _matmul() -> Any:
    return torch.backends.cuda.matmul


def _cudnn() -> tuple[Any, Any]:
    backend: Any = torch.backends.cudnn
    return backend.conv, backend.rnn


def _on(place: Any) -> bool:
    return place.fp32_precision == "tf32"


def _turn_off_matmul(undo: ExitStack) -> None:
    before = _known(torch.get_float32_matmul_precision)
    if before is None:
        _set(_matmul(), undo)
    else:
        undo.callback(torch.set_float32_matmul_precision, before)
        torch.set_float32_matmul_precision("highest")


def _turn_off_cudnn(undo: ExitStack) -> None:
    backend: Any = torch.backends.cudnn
    if _known(lambda: backend.allow_tf32) is not None:
        undo.callback(partial(setattr, backend, "allow_tf32", True))
        backend.allow_tf32 = False
    for place in _cudnn():
        if _on(place):  # set for all operations by a global `fp32_precision`
            _set(place, undo)


def _set(place: Any, undo: ExitStack) -> None:
    undo.callback(setattr, place, "fp32_precision", place.fp32_precision)
    place.fp32_precision = "ieee"


def _known(getter: Callable[[], Any]) -> Any:
    """What the getter says; None where it raises, since the state was set in the other way."""
    try:
        return getter()
    except RuntimeError:
        return None

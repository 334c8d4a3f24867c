"""What a verb of the command line is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verb:
    """A verb of the command line: its settings, what it runs, and how it is called."""

    config: type
    run: Callable[[dict[str, Any]], int]
    example: str

    @property
    def about(self) -> str:
        return (self.config.__doc__ or "").splitlines()[0]

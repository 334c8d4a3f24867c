"""Real-time vision you can see through: the public names.

Each is imported when it is first used, so that `import pellucid` needs no torch. What they do is also the command line: `pellucid --help`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Model": "model",
    "Result": "results",
    "open_dataset": "data.readers",
    "DataModule": "data.module",
    "DetectorModule": "train.module",
    "TrainConfig": "config",
    "TASKS": "tasks",
    "PellucidError": "errors",
    "PellucidWarning": "errors",
}

if TYPE_CHECKING:
    from .config import TrainConfig
    from .data.module import DataModule
    from .data.readers import open_dataset
    from .errors import PellucidError, PellucidWarning
    from .model import Model
    from .results import Result
    from .tasks import TASKS
    from .train.module import DetectorModule

__all__ = [
    "TASKS",
    "DataModule",
    "DetectorModule",
    "Model",
    "PellucidError",
    "PellucidWarning",
    "Result",
    "TrainConfig",
    "__version__",
    "open_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return __all__

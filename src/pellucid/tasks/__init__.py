"""All tasks, by name: `TASKS[name](**arguments)` makes one."""

from collections.abc import Callable, Mapping

from .base import Overlap, Task, Term
from .detect import detect
from .obb import obb
from .pose import pose
from .segment import segment

TASKS: Mapping[str, Callable[..., Task]] = {"detect": detect, "segment": segment, "pose": pose, "obb": obb}

__all__ = ["TASKS", "Overlap", "Task", "Term"]

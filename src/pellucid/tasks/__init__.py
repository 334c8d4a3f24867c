"""All tasks, by name: `TASKS[name](**arguments)` makes one."""

from .base import Overlap, Task, Term
from .detect import detect

TASKS = {"detect": detect}

__all__ = ["TASKS", "Overlap", "Task", "Term"]

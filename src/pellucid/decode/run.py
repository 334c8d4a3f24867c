"""One entry for both paths: from the network's output to the objects of each image, in canvas pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ..errors import UsageError
from ..types import Dense, Instances, Output
from .nms import sound, suppress
from .topk import Rows, top_rows

if TYPE_CHECKING:
    from ..tasks.base import Task

PATHS = ("e2e", "nms")


def decode(
    output: Output,
    task: Task,
    path: str = "e2e",
    conf: float = 0.25,
    iou: float = 0.7,
    max_det: int = 300,
    agnostic: bool = False,
    classes: Sequence[int] | None = None,
) -> list[Instances]:
    """Objects of each image on the CPU, canvas pixels, best first: by top-k of the one-to-one branch or NMS of the one-to-many branch.

    `iou` and `agnostic` act on "nms" only. `classes` are looked at alone: others never take one of the `max_det` places.
    """
    dense = _branch(output, path)
    if classes is not None:
        dense = _only(dense, classes)
    if path == "e2e":
        rows = _above(top_rows(dense, task, max_det).cpu(), conf)
    else:
        rows = [found.cpu() for found in suppress(dense, task, conf, iou, max_det, agnostic)]
    return _finish(rows, output, task)


def best(output: Output, task: Task, path: str = "e2e", limit: int = 300) -> list[Instances]:
    """The `limit` best anchors of each image as objects, nothing suppressed or held to a score: what two runs are compared by."""
    return _finish(_above(top_rows(_branch(output, path), task, limit).cpu(), 0.0), output, task)


def _branch(output: Output, path: str) -> Dense:
    if path not in PATHS:
        raise UsageError(f"path must be one of {', '.join(PATHS)}, got {path!r}")
    dense = output.one if path == "e2e" else output.many
    if dense is None:
        other = "nms" if path == "e2e" else "e2e"
        raise UsageError(
            f"path {path!r} needs a branch that this model gave away when it was fused; use path={other!r} or fuse with keep='both'"
        )
    return dense


def _only(dense: Dense, classes: Sequence[int]) -> Dense:
    """The same branch with the logits of all other classes at -inf."""
    logits = dense.outputs["cls"]
    count = logits.shape[-1]
    if not classes or any(not 0 <= c < count for c in classes):
        raise UsageError(f"classes must be numbers from 0 to {count - 1}, got {list(classes)}; see the names of the model")
    other = torch.ones(count, dtype=torch.bool, device=logits.device)
    other[list(classes)] = False
    return replace(dense, outputs={**dense.outputs, "cls": logits.masked_fill(other, -math.inf)})


def _above(rows: Rows, conf: float) -> list[Rows]:
    """Of each image the rows at or above `conf` whose box is finite and has an area."""
    keep = (rows.scores >= conf) & (rows.scores > 0) & sound(rows.values["boxes"])
    return [rows[i][keep[i]] for i in range(len(keep))]


def _finish(rows: Sequence[Rows], output: Output, task: Task) -> list[Instances]:
    shared = {key: value.float().cpu() for key, value in output.shared.items() if key not in task.training_only}
    parts = [{key: value[i] for key, value in shared.items()} for i in range(len(rows))]
    return [Instances(found.labels, dict(task.finish(found.values, part)), found.scores) for found, part in zip(rows, parts, strict=True)]

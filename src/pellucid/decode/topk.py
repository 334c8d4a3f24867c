"""End-to-end decoding: the k best anchors of every image, with static shapes. An exported graph ends here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..types import Dense

if TYPE_CHECKING:
    from ..tasks.base import Task


@dataclass(frozen=True)
class Rows:
    """Selected predictions, best first: of B images (B, k, ...), or of one image (n, ...)."""

    values: Mapping[str, Tensor]  # decoded shapes in canvas pixels ("boxes") and raw outputs, without "cls"
    scores: Tensor  # (B, k) float32 in [0, 1]; -1 where the logits were not a number
    labels: Tensor  # (B, k) int64

    def __len__(self) -> int:
        return self.scores.shape[0]

    def __getitem__(self, index: Tensor | slice | int) -> Rows:
        return Rows({key: value[index] for key, value in self.values.items()}, self.scores[index], self.labels[index])

    def cpu(self) -> Rows:
        return Rows({key: value.cpu() for key, value in self.values.items()}, self.scores.cpu(), self.labels.cpu())


def dense_values(dense: Dense, task: Task) -> dict[str, Tensor]:
    """Raw outputs beside the class logits, and the task's shapes, (B, A, ...) float32."""
    raw = {key: value.float() for key, value in dense.outputs.items()}
    shapes = task.shapes(raw, dense.points, dense.strides) if dense.shapes is None else dense.shapes
    return {**{key: value for key, value in raw.items() if key != "cls"}, **shapes}


def top_rows(dense: Dense, task: Task, limit: int = 300) -> Rows:
    """The min(limit, A) best anchors of each image by their largest class probability, each with that one class."""
    logits, labels = dense.outputs["cls"].float().max(-1)  # (B, A)
    scores = torch.where(logits.isnan(), -1.0, logits.sigmoid())
    scores, best = scores.topk(min(limit, scores.shape[1]), dim=1)  # (B, k)
    values = {key: _gather(value, best) for key, value in dense_values(dense, task).items()}
    return Rows(values, scores, labels.gather(1, best))


def _gather(value: Tensor, best: Tensor) -> Tensor:
    """Rows `best` (B, k) of `value` (B, A, ...)."""
    index = best.reshape(*best.shape, *[1] * (value.dim() - 2)).expand(*best.shape, *value.shape[2:])
    return value.gather(1, index)

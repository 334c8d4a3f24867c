"""The objective of every task: the only place that knows branches, gains and the normaliser (arXiv 2606.03748, Eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..assign.aligned import align
from ..losses.classes import sparse_bce
from ..numerics.islands import autocast_off
from ..tasks import Task
from ..types import Assignment, Dense, Output, Pairs, Targets

TOPK_MANY, TOPK_ONE = 10, 7


@dataclass(frozen=True)
class BranchLoss:
    """Sums of one branch, gains applied, not yet divided by `weight`, the sum of q over the batch."""

    sums: Mapping[str, Tensor]  # {"box": (), "cls": (), ...}
    weight: Tensor  # ()

    def total(self, normaliser: Tensor) -> Tensor:
        return torch.stack(list(self.sums.values())).sum() / normaliser

    def items(self) -> dict[str, Tensor]:
        """The losses by name, detached, as they are logged."""
        return {name: value.detach() / self.weight.clamp(min=1) for name, value in self.sums.items()}


class Criterion:
    """Scores both branches against the targets of a batch; no host synchronisation, shapes fixed by the batch."""

    def __init__(self, task: Task, cls_gain: float = 0.5) -> None:
        self.task = task
        self.cls_gain = cls_gain

    def __call__(self, output: Output, targets: Targets) -> tuple[BranchLoss, BranchLoss]:
        """(one-to-many, one-to-one) losses of an unfused model's output, in float32 whatever the autocast state."""
        if output.many is None or output.one is None:
            raise ValueError("training needs both branches of the head, got a fused model; build or load an unfused one")
        with autocast_off(output.one.points.device):
            many = self.branch(output.many, targets, output.size, TOPK_MANY, single=False)
            one = self.branch(output.one, targets, output.size, TOPK_ONE, single=True)
        return many, one

    def branch(self, dense: Dense, targets: Targets, size: tuple[int, int], topk: int, single: bool) -> BranchLoss:
        """The loss of one branch: assign, gather, and sum each term over its pairs."""
        shapes = self.task.shapes({name: value.detach() for name, value in dense.outputs.items()}, dense.points, dense.strides)
        chosen = align(dense.outputs["cls"].detach(), shapes, dense.points, targets, self.task.overlap, topk, single)
        pairs = gather_pairs(self.task, dense, targets.truth, chosen, size)
        labels = targets.labels.gather(1, chosen.object)
        sums = {term.name: term.gain * (term.loss(pairs) * chosen.weight).sum() for term in self.task.terms}
        sums["cls"] = self.cls_gain * sparse_bce(dense.outputs["cls"], chosen.anchor, labels, chosen.weight)
        return BranchLoss(sums, chosen.weight.sum())


def combine(many: BranchLoss, one: BranchLoss, share: Tensor, batch: int, weights: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """batch x (share x many + (1 - share) x one), each divided by its sum of q, at least 1 (Eq. 2).

    `weights` replace the two sums where the batch is a part of a larger one.
    """
    of_many, of_one = (many.weight, one.weight) if weights is None else weights
    return batch * (share * many.total(of_many.clamp(min=1)) + (1 - share) * one.total(of_one.clamp(min=1)))


def gather_pairs(task: Task, dense: Dense, truth: Mapping[str, Tensor], chosen: Assignment, size: tuple[int, int]) -> Pairs:
    """Prediction and truth of every slot; an empty slot's outputs are replaced by 1: its losses are finite, its gradient is 0."""
    filled = chosen.valid[..., None]
    outputs = {name: torch.where(filled, _rows(value, chosen.anchor), 1.0) for name, value in dense.outputs.items() if name != "cls"}
    points, strides = dense.points[chosen.anchor], dense.strides[chosen.anchor]
    return Pairs(
        outputs=outputs,
        shapes=task.shapes(outputs, points, strides),
        truth={name: _rows(value, chosen.object) for name, value in truth.items()},
        points=points,
        strides=strides,
        weight=chosen.weight,
        valid=chosen.valid,
        size=size,
    )


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """values (B, M, ...) at index (B, P) -> (B, P, ...)."""
    shape = index.shape + values.shape[2:]
    return values.gather(1, index.reshape(index.shape + (1,) * (values.dim() - 2)).expand(shape))

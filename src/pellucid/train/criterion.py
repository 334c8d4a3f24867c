"""The objective of every task: the only place that knows branches, gains and the normalisers (arXiv 2606.03748, Eq. 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from ..assign.aligned import align
from ..losses.classes import sparse_bce
from ..numerics.islands import autocast_off
from ..numerics.lanes import side_by_side
from ..tasks import Task
from ..tasks.base import by_quality
from ..types import Assignment, Dense, Output, Pairs, Targets

TOPK_MANY, TOPK_ONE = 10, 7
Counts = Mapping[str, Tensor]  # what each sum is divided by, before the floor of 1; "pairs" is the number of pairs
Both = tuple[Counts, Counts]  # of the one-to-many and of the one-to-one branch
REACHED = " sum"  # after the name of a loss with a floor: its sum among the counts, which says whether the large batch is above it


@dataclass(frozen=True)
class BranchLoss:
    """Sums of one branch, gains applied, and what each is to be divided by; both add up over the parts of a large batch."""

    sums: Mapping[str, Tensor]  # {"box": (), "cls": (), ...}
    counts: Counts
    least: Mapping[str, float]  # floors of some means
    by_image: frozenset[str]  # means over images, which count only where the batch has a pair

    def tensors(self) -> list[Tensor]:
        return [*self.sums.values(), *self.counts.values()]

    @property
    def weight(self) -> Tensor:
        """The sum of q."""
        return self.counts["cls"]

    def means(self, counts: Counts | None = None) -> dict[str, Tensor]:
        """The losses by name; `counts` are those of the large batch of which this one is a part."""
        counts = self.counts if counts is None else counts
        found = {name: value / counts[name].clamp(min=1) for name, value in self.sums.items()}
        taught = (counts["pairs"] > 0).float()
        found |= {name: found[name] * taught for name in self.by_image}
        for name, floor in self.least.items():
            whole = counts[name + REACHED] / counts[name].clamp(min=1)
            found[name] = torch.where(whole < floor, floor, found[name])
        return found

    def total(self, counts: Counts | None = None) -> Tensor:
        return torch.stack(list(self.means(counts).values())).sum()

    def items(self) -> dict[str, Tensor]:
        """The losses by name, detached, as they are logged."""
        return {name: value.detach() for name, value in self.means().items()}


class Criterion:
    """Scores both branches against the targets of a batch; no host synchronisation, shapes fixed by the batch."""

    def __init__(self, task: Task, cls_gain: float = 0.5) -> None:
        self.task = task
        self.cls_gain = cls_gain
        self.names = (*(term.name for term in task.terms), *(term.name for term in task.shared_terms), "cls")
        floors = any(term.least is not None for term in task.terms)
        several = floors or task.shared_terms or (task.shared and not task.detached)  # both branches may teach what they share
        self.one_divisor = not several and all(term.weight is by_quality for term in task.terms)

    def __call__(self, output: Output, targets: Targets) -> tuple[BranchLoss, BranchLoss]:
        """(one-to-many, one-to-one) losses of an unfused model's output, in float32 whatever the autocast state."""
        if output.many is None or output.one is None:
            raise ValueError("training needs both branches of the head, got a fused model; build or load an unfused one")
        alone = {name: value.detach() if name in self.task.detached else value for name, value in output.shared.items()}
        with autocast_off(output.one.points.device):
            works = [
                partial(self.branch, output.many, output.shared, targets, output.size, TOPK_MANY, single=False),
                partial(self.branch, output.one, alone, targets, output.size, TOPK_ONE, single=True),
            ]
            reads = chain(output.many.outputs.values(), output.one.outputs.values(), output.shared.values())
            many, one = side_by_side(works, reads, BranchLoss.tensors)
        return many, one

    def branch(
        self, dense: Dense, shared: Mapping[str, Tensor], targets: Targets, size: tuple[int, int], topk: int, single: bool
    ) -> BranchLoss:
        """The loss of one branch: assign, gather, and sum each term over its pairs."""
        seen = replace(dense, outputs={name: value.detach() for name, value in dense.outputs.items()})
        shapes = self.task.shapes(seen.outputs, dense.points, dense.strides)
        chosen = align(seen, shapes, {name: value.detach() for name, value in shared.items()}, targets, self.task.overlap, topk, single)
        pairs = gather_pairs(self.task, dense, shared, targets.truth, chosen, size)
        labels = targets.labels.gather(1, chosen.object)
        sums, counts = {}, {"pairs": chosen.valid.sum()}
        for term in self.task.terms:
            weight = term.weight(pairs)
            sums[term.name] = term.gain * (term.loss(pairs) * weight).sum()
            counts[term.name] = weight.sum()
        for extra in self.task.shared_terms:
            values = extra.loss(shared, targets, size)
            sums[extra.name] = extra.gain * values.sum()
            counts[extra.name] = torch.ones_like(values).sum()
        sums["cls"] = self.cls_gain * sparse_bce(dense.outputs["cls"], chosen.anchor, labels, chosen.weight, targets.ignored)
        counts["cls"] = chosen.weight.sum()
        least = {term.name: term.gain * term.least for term in self.task.terms if term.least is not None}
        counts |= {name + REACHED: sums[name].detach() for name in least}
        return BranchLoss(sums, counts, least, frozenset(extra.name for extra in self.task.shared_terms))


def combine(many: BranchLoss, one: BranchLoss, share: Tensor, batch: int, counts: Both | None = None) -> Tensor:
    """batch x (share x many + (1 - share) x one) (Eq. 2); `counts` replace those of both branches in a part of a larger batch."""
    of_many, of_one = (None, None) if counts is None else counts
    return batch * (share * many.total(of_many) + (1 - share) * one.total(of_one))


def gather_pairs(
    task: Task, dense: Dense, shared: Mapping[str, Tensor], truth: Mapping[str, Tensor], chosen: Assignment, size: tuple[int, int]
) -> Pairs:
    """Prediction and truth of every slot; an empty slot's outputs are replaced by 1: its losses are finite, its gradient is 0."""
    filled = chosen.valid[..., None]
    outputs = {name: torch.where(filled, _rows(value, chosen.anchor), 1.0) for name, value in dense.outputs.items() if name != "cls"}
    points, strides = dense.points[chosen.anchor], dense.strides[chosen.anchor]
    return Pairs(
        outputs=outputs,
        shapes=task.shapes(outputs, points, strides),
        truth=_Gathered(truth, chosen.object),
        shared=shared,
        object=chosen.object,
        points=points,
        strides=strides,
        weight=chosen.weight,
        valid=chosen.valid,
        size=size,
        objects=truth,
    )


class _Gathered(Mapping[str, Tensor]):
    """Truth of each slot, gathered when it is first asked for."""

    def __init__(self, truth: Mapping[str, Tensor], owner: Tensor) -> None:
        self._truth, self._owner = truth, owner
        self._found: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._found:
            self._found[name] = _rows(self._truth[name], self._owner)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._truth)

    def __len__(self) -> int:
        return len(self._truth)


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """values (B, M, ...) at index (B, P) -> (B, P, ...)."""
    shape = index.shape + values.shape[2:]
    return values.gather(1, index.reshape(index.shape + (1,) * (values.dim() - 2)).expand(shape))

"""What a task is: a frozen value that says what the head gives, what is compared, what is taught and what is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..assign.aligned import FORMS
from ..errors import UsageError
from ..geometry import Shape
from ..geometry.suppress import box_nms
from ..models.head import Stem
from ..types import Instances, Pairs, Targets

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class Overlap:
    """How predictions are compared with objects when they are assigned.

    `similarity(predicted, truth)`: shapes {(B, A, ...)}, objects {(B, n, ...)} -> u (B, n, A) in [0, 1].
    `inside(points, strides, truth)`: anchor centres (A, 2), their strides (A,), objects {(B, n, ...)} -> (B, n, A) bool, the candidates.
    `refine(rows, shared, truth)`: a second look at the 3 x topk best candidates of each object, outputs and shapes gathered for them
    {(B, n, r, ...)} -> (B, n, r) in [0, 1]; u is then the mean of both, 0 for the second where nobody looked.
    `form` names what compares and looks inside as both functions do in one GPU kernel (`assign/comparisons.py`), `numbers` are its own;
    without a form the functions themselves do it on a GPU too.
    """

    similarity: Callable[[Values, Values], Tensor]
    inside: Callable[[Tensor, Tensor, Values], Tensor]
    refine: Callable[[Values, Values, Values], Tensor] | None = None
    cost: int = 1  # numbers that one comparison of an object with an anchor holds at once
    far: bool = True  # whether a candidate so far off that t is 0 may be a pair; its q is 0, so terms of q do not feel it
    form: str | None = None
    numbers: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.form is not None and self.form not in FORMS:
            raise UsageError(f"form: expected {' or '.join(FORMS)}, got {self.form!r}; leave it out for a comparison of your own")


def by_quality(pairs: Pairs) -> Tensor:
    """Pairs count by q, (B, P)."""
    return pairs.weight


def by_pair(pairs: Pairs) -> Tensor:
    """All pairs count alike, (B, P)."""
    return pairs.valid.float()


@dataclass(frozen=True)
class Term:
    """A named loss on pairs: gain x the mean of `loss(pairs)` (B, P) weighted by `weight(pairs)` (B, P), of sum 1 or more."""

    name: str
    gain: float
    loss: Callable[[Pairs], Tensor]
    weight: Callable[[Pairs], Tensor] = by_quality
    least: float | None = None  # floor of the mean


@dataclass(frozen=True)
class SharedTerm:
    """A named loss on what the anchors of an image share: gain x the mean over images of `loss(shared, targets, size)` (B,).

    It is 0 where the branch has no pair in the whole batch.
    """

    name: str
    gain: float
    loss: Callable[[Values, Targets, tuple[int, int]], Tensor]


@dataclass(frozen=True)
class Task:
    """Everything that differs between tasks; all functions are module-level, so that workers can pickle them."""

    name: str
    needs: tuple[str, ...]  # annotation kinds that a reader must deliver, "boxes" first
    stems: tuple[Stem, ...]  # per-anchor outputs beside the class logits
    shared: Mapping[str, Callable[[tuple[int, ...], int], nn.Module]]  # (widths of the levels, nc) -> module: maps -> {name: tensor}
    kinds: Mapping[str, type[Shape]]  # shape types of a prediction
    targets: Callable[[Instances, int], Mapping[str, Tensor]]  # (objects, S) -> extra rows for Targets.extras
    shapes: Callable[[Values, Tensor, Tensor], Values]  # (outputs, points, strides) -> shapes (B, A, ...), "boxes" among them
    overlap: Overlap
    terms: tuple[Term, ...]
    finish: Callable[[Values, Values], Mapping[str, Shape]]  # (rows of one image, its shared) -> shapes
    metrics: tuple[str, ...]  # names of evaluate.METRICS, the first chooses the best epoch: "box", ...
    shared_terms: tuple[SharedTerm, ...] = ()
    training_only: tuple[str, ...] = ()  # shared outputs that `fuse` drops
    detached: tuple[str, ...] = ()  # shared outputs that the one-to-one branch does not teach
    nms: Callable[[Values, Tensor, Tensor, float], Tensor] = box_nms  # (shapes, scores, groups, iou) -> positions kept
    row: tuple[str, ...] = ("boxes",)  # an exported row: the first of these, score, class, the others
    facts: Mapping[str, Any] = field(default_factory=dict)  # what a reader of exported rows must know besides, JSON-ready

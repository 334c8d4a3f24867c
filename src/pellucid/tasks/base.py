"""What a task is: a frozen value that says what the head gives, what is compared, what is taught and what is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from ..geometry import Shape
from ..models.head import Stem
from ..types import Instances, Pairs


@dataclass(frozen=True)
class Overlap:
    """How predictions are compared with objects when they are assigned.

    `similarity(predicted, truth)`: shapes {(B, A, ...)}, objects {(B, n, ...)} -> (B, n, A) in [0, 1].
    `inside(points, truth)`: anchor centres (A, 2), objects {(B, n, ...)} -> (B, n, A) bool, the candidates.
    """

    similarity: Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor]
    inside: Callable[[Tensor, Mapping[str, Tensor]], Tensor]


@dataclass(frozen=True)
class Term:
    """A named loss on pairs: `loss(pairs)` -> (B, P), to be weighted by q, summed, and divided by the sum of q."""

    name: str
    gain: float
    loss: Callable[[Pairs], Tensor]


@dataclass(frozen=True)
class Task:
    """Everything that differs between tasks; all functions are module-level, so that workers can pickle them."""

    name: str
    needs: tuple[str, ...]  # annotation kinds that a reader must deliver, "boxes" first
    stems: tuple[Stem, ...]  # per-anchor outputs beside the class logits
    shared: Mapping[str, Callable[[tuple[int, ...]], nn.Module]]  # outputs per image, from the widths of the levels
    kinds: Mapping[str, type[Shape]]  # shape types of a prediction
    targets: Callable[[Instances, int], Mapping[str, Tensor]]  # (objects, S) -> extra rows for Targets.extras
    shapes: Callable[[Mapping[str, Tensor], Tensor, Tensor], Mapping[str, Tensor]]  # (outputs, points, strides) -> shapes (B, A, ...)
    overlap: Overlap
    terms: tuple[Term, ...]
    finish: Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Mapping[str, Shape]]  # (rows of one image, its shared) -> shapes
    metrics: tuple[str, ...]  # names of evaluate.METRICS: "box", ...

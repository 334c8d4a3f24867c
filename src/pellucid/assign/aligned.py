"""Task-aligned assignment with small-target candidates, for both branches (arXiv 2108.07755; arXiv 2606.03748, Eq. 4-6).

Static shapes throughout: N objects x k slots an image, whatever the boxes are. Objects are looked at in chunks: a crowd costs
time, not memory. On a GPU, tasks that name a form are claimed for by `kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from ..numerics.islands import full
from ..numerics.kernels import compiled
from ..types import Assignment, Dense, Targets

ALPHA, BETA = 0.5, 6.0  # t = p^alpha u^beta
CHUNK = 1 << 24  # (image, object, anchor) triples looked at in one pass, divided by the cost of one
FORMS = {"boxes": 0, "rboxes": 1, "keypoints": 2}  # comparisons that have a kernel, and their numbers in `comparisons`
LOOK = 3  # times topk candidates get the second look of an Overlap that has one


Values = Mapping[str, Tensor]


class Comparison(Protocol):
    """How predictions and objects are compared: a task's Overlap."""

    @property
    def similarity(self) -> Callable[[Values, Values], Tensor]: ...

    @property
    def inside(self) -> Callable[[Tensor, Tensor, Values], Tensor]: ...

    @property
    def refine(self) -> Callable[[Values, Values, Values], Tensor] | None: ...

    @property
    def cost(self) -> int: ...

    @property
    def far(self) -> bool: ...

    @property
    def form(self) -> str | None: ...

    @property
    def numbers(self) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class _Claims:
    """The k best candidates of every object, and the best holder of every anchor."""

    anchor: Tensor  # (B, N, k) int64
    similarity: Tensor  # (B, N, k)
    valid: Tensor  # (B, N, k) bool
    best: Tensor  # (B, A) largest u among the objects whose window holds the anchor
    holder: Tensor  # (B, A) int64, the object that has it


@torch.no_grad()
def align(
    dense: Dense, shapes: Values, shared: Values, targets: Targets, overlap: Comparison, topk: int, single: bool = False
) -> Assignment:
    """Assign anchors to objects by t = p^0.5 u^6; `single` then leaves each object its best anchor alone.

    `dense` is one branch with A anchors, `shapes` {(B, A, ...)} its decoded shapes, `shared` what the anchors of an image share.
    An anchor claimed more than once goes to the object with the largest u among all whose window holds it.
    Weights are q = t max(u) / (max(t) + 1e-9), maxima over an object's anchors (TOOD, 3.3).
    """
    logits, points = dense.outputs["cls"], dense.points
    claims = _claim(dense, shapes, shared, targets, overlap, min(topk, points.shape[0]))
    batch, objects, k = claims.anchor.shape
    anchor, claimed = claims.anchor.flatten(1), claims.valid.flatten(1)  # (B, P)
    own = torch.arange(objects, device=anchor.device).repeat_interleave(k).expand(batch, -1)
    contested = torch.zeros_like(claims.best).scatter_add(1, anchor, claimed.to(claims.best.dtype)).gather(1, anchor) > 1
    owner = torch.where(contested, claims.holder.gather(1, anchor), own)
    u = torch.where(contested, claims.best.gather(1, anchor), claims.similarity.flatten(1)) * claimed
    t = _scores(logits, anchor, targets.labels.gather(1, owner)) * u**BETA
    kept = claimed & _first(anchor, claimed, points.shape[0])
    if single:
        strongest = kept & (t == _largest(t, owner, kept, objects).gather(1, owner))
        kept = strongest & _first(owner, strongest, objects)
    top_u = _largest(u, owner, kept, objects).gather(1, owner)
    top_t = _largest(t, owner, kept, objects).gather(1, owner)
    return Assignment(anchor, owner, torch.where(kept, t * top_u / (top_t + 1e-9), 0.0), kept)


def _claim(dense: Dense, shapes: Values, shared: Values, targets: Targets, overlap: Comparison, k: int) -> _Claims:
    """By the kernel where it can, else by comparing all with all."""
    sound = overlap.form is not None and dense.points.is_cuda and all(value.dtype == torch.float32 for value in shapes.values())
    kernels = _kernels() if sound else None
    if kernels is None:
        return _compare_all(dense, shapes, shared, targets, overlap, k)
    return _claim_inside(kernels, dense, shapes, shared, targets, overlap, k)


def _kernels() -> ModuleType | None:
    return compiled("pellucid.assign.kernels", "assignment")


def _claim_inside(
    kernels: ModuleType, dense: Dense, shapes: Values, shared: Values, targets: Targets, overlap: Comparison, k: int
) -> _Claims:
    """The same claims by a kernel that looks at the windows alone.

    With a second look, it gives the candidates to look at and the k next: those that nobody looks at keep half of their u, and so
    their order.
    """
    count, anchors = targets.labels.shape[1], dense.points.shape[0]
    looks = min(LOOK * k, anchors) if overlap.refine is not None else 0
    known, share = (min(looks + k, anchors), 0.5) if looks else (k, 1.0)
    anchor, u, t, held = kernels.claim((overlap.form, overlap.numbers), dense, shapes, targets, known, share)
    if overlap.refine is not None:
        rows = _gather_looked(dense, shapes, anchor[..., :looks])
        second = torch.nn.functional.pad(overlap.refine(rows, shared, targets.truth), (0, known - looks))
        u = torch.where(u >= 0, (u + second) / 2, u)
        objects = torch.arange(count, device=u.device)[:, None]
        held = held.scatter_reduce(1, anchor.flatten(1), kernels.pack(u, objects, count).flatten(1), "amax")
        labels = targets.labels.repeat_interleave(known, 1)
        t, which = _best(u, _scores(dense.outputs["cls"], anchor.flatten(1), labels).view_as(u), k)
        anchor, u = anchor.gather(-1, which), u.gather(-1, which)
    best, holder = kernels.unpack(held, count)
    return _Claims(anchor, u, ((t >= 0) if overlap.far else (t > 0)) & (t < torch.inf), best, holder)


def _scores(logits: Tensor, anchor: Tensor, label: Tensor) -> Tensor:
    """p^0.5 in at least float32 of logits (B, A, C) at anchor and label, (B, P) each."""
    rows = torch.arange(len(logits), device=logits.device)[:, None]
    return full(logits[rows, anchor, label]).sigmoid() ** ALPHA


def _compare_all(dense: Dense, shapes: Values, shared: Values, targets: Targets, overlap: Comparison, k: int) -> _Claims:
    logits = full(dense.outputs["cls"])
    batch, anchors, _ = logits.shape
    by_class = logits.transpose(1, 2)
    rows = torch.arange(batch, device=logits.device)[:, None]
    step = max(1, CHUNK // (batch * anchors * overlap.cost))
    best = logits.new_full((batch, anchors), -1.0)
    holder = torch.zeros_like(best, dtype=torch.int64)
    parts = []
    for start in range(0, targets.labels.shape[1], step):
        chunk = slice(start, start + step)
        objects = {name: value[:, chunk] for name, value in targets.truth.items()}
        window = overlap.inside(dense.points, dense.strides, objects) & targets.valid[:, chunk, None]  # (B, n, A)
        score = by_class[rows, targets.labels[:, chunk]].sigmoid() ** ALPHA
        u = torch.where(window, overlap.similarity(shapes, objects), -1.0)
        if overlap.refine is not None:
            u = _refined(u, score, dense, shapes, shared, objects, overlap.refine, min(LOOK * k, anchors))
        t, anchor = _best(u, score, k)
        parts.append((anchor, u.gather(-1, anchor), t >= 0 if overlap.far else t > 0))
        top, which = u.max(1)
        holder = torch.where(top > best, which + start, holder)
        best = torch.maximum(best, top)
    anchor, similarity, inside = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return _Claims(anchor, similarity, inside, best, holder)


def _best(u: Tensor, score: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """t and place of the k best anchors of each object, (B, n, k) each; u is -1 outside the window, and those come last."""
    t, anchor = torch.where(u >= 0, score * u.clamp(min=0) ** BETA, -1.0).topk(k, -1)
    return t, anchor


def _refined(
    u: Tensor,
    score: Tensor,
    dense: Dense,
    shapes: Values,
    shared: Values,
    objects: Values,
    refine: Callable[[Values, Values, Values], Tensor],
    looks: int,
) -> Tensor:
    """The mean of u and a second look at the best candidates of each object; -1 stays outside the window, (B, n, A)."""
    _, anchor = _best(u, score, looks)  # (B, n, r)
    second = torch.zeros_like(u).scatter(-1, anchor, refine(_gather_looked(dense, shapes, anchor), shared, objects))
    return torch.where(u >= 0, (u + second) / 2, u)


def _gather_looked(dense: Dense, shapes: Values, anchor: Tensor) -> Values:
    """Outputs but the logits, and shapes, of anchor (B, n, r)."""
    outputs = {name: value for name, value in dense.outputs.items() if name != "cls"}
    return {name: _gather(value, anchor) for name, value in {**outputs, **shapes}.items()}


def _gather(values: Tensor, anchor: Tensor) -> Tensor:
    """values (B, A, ...) at anchor (B, n, r) -> (B, n, r, ...)."""
    flat = anchor.flatten(1)
    index = flat.reshape(flat.shape + (1,) * (values.dim() - 2)).expand(flat.shape + values.shape[2:])
    return values.gather(1, index).unflatten(1, anchor.shape[1:])


def _first(key: Tensor, chosen: Tensor, size: int) -> Tensor:
    """True at the first chosen slot of each key; key (B, P) in [0, size)."""
    slot = torch.arange(key.shape[1], device=key.device).expand_as(key)
    ranked = torch.where(chosen, slot, key.shape[1])
    lowest = ranked.new_full((key.shape[0], size), key.shape[1]).scatter_reduce(1, key, ranked, "amin")
    return lowest.gather(1, key) == slot


def _largest(value: Tensor, key: Tensor, chosen: Tensor, size: int) -> Tensor:
    """Largest chosen value of each key, (B, size); 0 where there is none. Values are not negative."""
    return value.new_zeros(value.shape[0], size).scatter_reduce(1, key, torch.where(chosen, value, 0.0), "amax")

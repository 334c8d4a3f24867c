"""Task-aligned assignment with small-target candidates, for both branches (arXiv 2108.07755; arXiv 2606.03748, Eq. 4-6).

Static shapes throughout: N objects x k slots an image, whatever the boxes are. Objects are looked at in chunks: a crowd costs
time, not memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..types import Assignment, Targets

ALPHA, BETA = 0.5, 6.0  # t = p^alpha u^beta
CHUNK = 1 << 24  # (image, object, anchor) triples looked at in one pass


class Comparison(Protocol):
    """How predictions and objects are compared: a task's Overlap."""

    @property
    def similarity(self) -> Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor]: ...

    @property
    def inside(self) -> Callable[[Tensor, Mapping[str, Tensor]], Tensor]: ...


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
    logits: Tensor, shapes: Mapping[str, Tensor], points: Tensor, targets: Targets, overlap: Comparison, topk: int, single: bool = False
) -> Assignment:
    """Assign anchors to objects by t = p^0.5 u^6; `single` then leaves each object its best anchor alone.

    logits (B, A, C); shapes {(B, A, ...)}; points (A, 2).
    An anchor claimed more than once goes to the object with the largest u among all whose window holds it.
    Weights are q = t max(u) / (max(t) + 1e-9), maxima over an object's anchors (TOOD, 3.3).
    """
    logits = logits.float()
    claims = _claim(logits, shapes, points, targets, overlap, min(topk, points.shape[0]))
    batch, objects, k = claims.anchor.shape
    anchor, claimed = claims.anchor.flatten(1), claims.valid.flatten(1)  # (B, P)
    own = torch.arange(objects, device=anchor.device).repeat_interleave(k).expand(batch, -1)
    contested = torch.zeros_like(claims.best).scatter_add(1, anchor, claimed.float()).gather(1, anchor) > 1
    owner = torch.where(contested, claims.holder.gather(1, anchor), own)
    u = torch.where(contested, claims.best.gather(1, anchor), claims.similarity.flatten(1)) * claimed
    score = logits.flatten(1).gather(1, anchor * logits.shape[-1] + targets.labels.gather(1, owner)).sigmoid()
    t = score**ALPHA * u**BETA
    kept = claimed & _first(anchor, claimed, points.shape[0])
    if single:
        strongest = kept & (t == _largest(t, owner, kept, objects).gather(1, owner))
        kept = strongest & _first(owner, strongest, objects)
    top_u = _largest(u, owner, kept, objects).gather(1, owner)
    top_t = _largest(t, owner, kept, objects).gather(1, owner)
    return Assignment(anchor, owner, torch.where(kept, t * top_u / (top_t + 1e-9), 0.0), kept)


def _claim(logits: Tensor, shapes: Mapping[str, Tensor], points: Tensor, targets: Targets, overlap: Comparison, k: int) -> _Claims:
    batch, anchors, _ = logits.shape
    by_class = logits.transpose(1, 2)
    rows = torch.arange(batch, device=logits.device)[:, None]
    step = max(1, CHUNK // (batch * anchors))
    best = logits.new_full((batch, anchors), -1.0)
    holder = torch.zeros_like(best, dtype=torch.int64)
    parts = []
    for start in range(0, targets.labels.shape[1], step):
        chunk = slice(start, start + step)
        objects = {name: value[:, chunk] for name, value in targets.truth.items()}
        window = overlap.inside(points, objects) & targets.valid[:, chunk, None]  # (B, n, A)
        u = torch.where(window, overlap.similarity(shapes, objects), -1.0)
        t = by_class[rows, targets.labels[:, chunk]].sigmoid() ** ALPHA * u.clamp(min=0) ** BETA
        _, anchor = torch.where(window, t, -1.0).topk(k, -1)
        parts.append((anchor, u.gather(-1, anchor), window.gather(-1, anchor)))
        top, which = u.max(1)
        holder = torch.where(top > best, which + start, holder)
        best = torch.maximum(best, top)
    anchor, similarity, inside = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return _Claims(anchor, similarity, inside, best, holder)


def _first(key: Tensor, chosen: Tensor, size: int) -> Tensor:
    """True at the first chosen slot of each key; key (B, P) in [0, size)."""
    slot = torch.arange(key.shape[1], device=key.device).expand_as(key)
    ranked = torch.where(chosen, slot, key.shape[1])
    lowest = ranked.new_full((key.shape[0], size), key.shape[1]).scatter_reduce(1, key, ranked, "amin")
    return lowest.gather(1, key) == slot


def _largest(value: Tensor, key: Tensor, chosen: Tensor, size: int) -> Tensor:
    """Largest chosen value of each key, (B, size); 0 where there is none. Values are not negative."""
    return value.new_zeros(value.shape[0], size).scatter_reduce(1, key, torch.where(chosen, value, 0.0), "amax")

"""The class loss: binary cross-entropy of every anchor and class against soft targets that are zero almost everywhere."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from ..numerics.islands import full
from ..types import Regions


def sparse_bce(logits: Tensor, anchor: Tensor, label: Tensor, target: Tensor, ignored: Regions | None = None) -> Tensor:
    """Sum of BCE(logit, q) over all anchors and classes, as softplus(x) everywhere minus q x at the (anchor, class) pairs named.

    logits (B, A, C); anchor, label (B, P) int64; target (B, P) in [0, 1], 0 for an empty slot. A class is left out at anchors in its
    `ignored` regions, unless an object of it is taught there. Returns a scalar.
    """
    logits = full(logits)
    pair = anchor * logits.shape[-1] + label
    cost = softplus(logits).flatten(1)
    if ignored is not None:
        cost = cost * _counted(ignored, pair.where(target > 0, cost.shape[1]), logits.shape[-1])
    return cost.sum() - (target * logits.flatten(1).gather(1, pair)).sum()


def _counted(ignored: Regions, taught: Tensor, classes: int) -> Tensor:
    """(B, A C) bool: not in a region of the class, or among the positions `taught` (B, P); A C stands for none."""
    named = (ignored.labels[..., None] == torch.arange(classes, device=taught.device)).float()  # (B, K, C)
    crowded = (ignored.cells.mT.float() @ named).flatten(1) > 0
    return ~pad(crowded, (0, 1)).scatter(1, taught, False)[:, :-1]

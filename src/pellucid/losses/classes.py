"""The class loss: binary cross-entropy of every anchor and class against soft targets that are zero almost everywhere."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from ..numerics.islands import full


def sparse_bce(logits: Tensor, anchor: Tensor, label: Tensor, target: Tensor) -> Tensor:
    """Sum of BCE(logit, q) over all anchors and classes, as softplus(x) everywhere minus q x at the (anchor, class) pairs named.

    logits (B, A, C); anchor, label (B, P) int64; target (B, P) in [0, 1], 0 for an empty slot. Returns a scalar.
    """
    logits = full(logits)
    classes = logits.shape[-1]
    chosen = logits.flatten(1).gather(1, anchor * classes + label)
    return softplus(logits).sum() - (target * chosen).sum()

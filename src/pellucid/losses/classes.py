"""The class loss: binary cross-entropy of every anchor and class against soft targets that are zero almost everywhere."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from ..numerics.islands import full
from ..types import Regions


def sparse_bce(logits: Tensor, anchor: Tensor, label: Tensor, target: Tensor, ignored: Regions | None = None) -> Tensor:
    """Sum of BCE(logit, q) over all anchors and classes, as softplus(x) everywhere minus q x at the (anchor, class) pairs named.

    logits (B, A, C); anchor, label (B, P) int64; target (B, P) in [0, 1], 0 for an empty slot. A class is left out at anchors in its
    `ignored` regions, unless an object of it is taught there. Returns a scalar.
    """
    logits = full(logits)
    classes = logits.shape[-1]
    chosen = logits.flatten(1).gather(1, anchor * classes + label)
    loss = softplus(logits).sum() - (target * chosen).sum()
    if ignored is None:
        return loss
    lost = logits.gather(2, ignored.labels[:, None].expand(-1, logits.shape[1], -1)).mT  # (B, K, A)
    held = ignored.cells.gather(2, anchor[:, None].expand(-1, ignored.labels.shape[1], -1)) & (ignored.labels[..., None] == label[:, None])
    taught = held.any(1) & (target > 0)
    return loss - (softplus(lost) * ignored.cells).sum() + (softplus(chosen) * taught).sum()

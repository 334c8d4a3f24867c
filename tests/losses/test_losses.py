"""Elementwise losses against plain formulas."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from pellucid.losses.classes import sparse_bce


def test_sparse_bce_is_bce_with_dense_targets():
    torch.manual_seed(0)
    logits = torch.randn(2, 50, 4, requires_grad=True)
    anchor, label = torch.tensor([[3, 7, 7], [0, 49, 5]]), torch.tensor([[1, 0, 3], [2, 2, 0]])
    target = torch.tensor([[0.5, 0.2, 0.9], [1.0, 0.3, 0.0]])
    dense = torch.zeros(2, 50, 4)
    for b in range(2):
        dense[b, anchor[b], label[b]] = target[b]
    ours = sparse_bce(logits, anchor, label, target)
    (gradient,) = torch.autograd.grad(ours, logits)
    theirs = binary_cross_entropy_with_logits(logits, dense, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs, logits)[0])

"""Elementwise losses against plain formulas."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from pellucid.losses.classes import sparse_bce
from pellucid.types import Regions


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


def test_an_ignored_region_does_not_teach_that_its_class_is_absent():
    """But an object in it is taught, and so are all other classes."""
    torch.manual_seed(0)
    logits = torch.randn(2, 50, 4, requires_grad=True)
    anchor, label = torch.tensor([[3, 7, 7], [0, 49, 0]]), torch.tensor([[1, 0, 3], [2, 2, 0]])
    target = torch.tensor([[0.5, 0.2, 0.9], [1.0, 0.3, 0.0]])
    labels, cells = torch.tensor([[3, 1, 0, 0], [2, 0, 0, 0]]), torch.zeros(2, 4, 50, dtype=torch.bool)
    cells[0, 0, 5:20], cells[0, 1, :4], cells[1, 0, 40:] = True, True, True
    weight, dense = torch.ones(2, 50, 4), torch.zeros(2, 50, 4)
    weight[0, 5:20, 3], weight[0, :4, 1], weight[1, 40:, 2] = 0, 0, 0
    for b in range(2):
        dense[b, anchor[b], label[b]] = target[b]
        weight[b, anchor[b][target[b] > 0], label[b][target[b] > 0]] = 1
    assert (weight == 0).sum() == 14 + 3 + 9
    ours = sparse_bce(logits, anchor, label, target, Regions(labels, cells))
    (gradient,) = torch.autograd.grad(ours, logits)
    theirs = binary_cross_entropy_with_logits(logits, dense, weight, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs, logits)[0])
    assert (gradient[weight == 0] == 0).all()
    none = Regions(labels, torch.zeros_like(cells))
    assert torch.equal(sparse_bce(logits, anchor, label, target, none), sparse_bce(logits, anchor, label, target))

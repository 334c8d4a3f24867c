"""Newton-Schulz orthogonalisation of many matrices at once (Jordan, Muon, 2024)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonalise(x: Tensor, steps: int = STEPS) -> Tensor:
    """Matrices (..., r, c) with r <= c -> nearly orthogonal ones: singular values pushed to about [0.7, 1.2]; zero rows and columns stay zero."""
    a, b, c = COEFFICIENTS
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def orthogonalise_all(weights: Sequence[Tensor]) -> list[Tensor]:
    """`orthogonalise` of weights with >= 2 dimensions seen as (out, rest); matrices of like size are padded with zeros and done in one batch."""
    buckets = defaultdict(list)
    for position, weight in enumerate(weights):
        buckets[bucket(weight)].append(position)
    results: list[Tensor] = [weights[0]] * len(weights)
    for (rows, columns), positions in buckets.items():
        stack = weights[0].new_zeros(len(positions), rows, columns)
        views = [_corner(stack[i], weights[p]) for i, p in enumerate(positions)]
        torch._foreach_copy_(views, [weights[p].flatten(1) for p in positions])
        done = orthogonalise(stack)
        for i, p in enumerate(positions):
            results[p] = _corner(done[i], weights[p]).reshape(weights[p].shape)
    return results


def bucket(weight: Tensor) -> tuple[int, int]:
    """The (rows, columns), powers of two, rows <= columns, that a weight's matrix is padded to."""
    rows, columns = sorted((weight.shape[0], weight[0].numel()))
    return 1 << (rows - 1).bit_length(), 1 << (columns - 1).bit_length()


def _corner(matrix: Tensor, weight: Tensor) -> Tensor:
    """The part of a padded matrix that holds this weight, as (out, rest)."""
    rows, columns = weight.shape[0], weight[0].numel()
    return matrix[:rows, :columns] if rows <= columns else matrix[:columns, :rows].mT

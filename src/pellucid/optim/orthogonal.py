"""Newton-Schulz orthogonalisation of many matrices at once (Jordan, Muon, 2024)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonalise(x: Tensor, steps: int = STEPS) -> Tensor:
    """Matrices (..., r, c) with r <= c -> nearly orthogonal ones: singular values pushed to about [0.7, 1.2].

    Zero rows and columns stay zero and change nothing else, so a matrix may be padded.
    """
    a, b, c = COEFFICIENTS
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class MatrixBatches:
    """The matrices (out, rest) of many weights, padded to a few common sizes, so that a handful of batched products serves them all."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        members = defaultdict(list)
        offset = 0
        for weight in weights:
            rows, columns = weight.shape[0], weight[0].numel()
            members[_padded(min(rows, columns)), _padded(max(rows, columns))].append((offset, rows, columns))
            offset += weight.numel()
        index = torch.empty(offset, dtype=torch.int64)
        self.sizes: list[tuple[int, int, int]] = []  # (matrices, rows, columns) of each batch
        start = 0
        for (rows, columns), matrices in members.items():
            for position, (at, r, c) in enumerate(matrices):
                place = torch.arange(rows * columns).view(rows, columns)
                place = place[:r, :c] if r <= c else place[:c, :r].T
                index[at : at + r * c] = place.flatten() + start + position * rows * columns
            self.sizes.append((len(matrices), rows, columns))
            start += len(matrices) * rows * columns
        self.index = index.to(weights[0].device)
        self.total = start

    def __call__(self, vector: Tensor) -> Tensor:
        """`orthogonalise` of every matrix; `vector` holds all weights end to end in memory order, and so does the result."""
        padded = vector.new_zeros(self.total).index_copy_(0, self.index, vector)
        batches = padded.split([count * rows * columns for count, rows, columns in self.sizes])
        done = [orthogonalise(batch.view(size)).flatten() for batch, size in zip(batches, self.sizes, strict=True)]
        return torch.cat(done).index_select(0, self.index)


def _padded(side: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is not below `side`."""
    power = 1 << (side - 1).bit_length()
    return power * 3 // 4 if power >= 4 and side <= power * 3 // 4 else power

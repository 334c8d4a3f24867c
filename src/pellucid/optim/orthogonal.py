"""Newton-Schulz orthogonalisation of many matrices at once (Jordan, Muon, 2024)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import combinations

import torch
from torch import Tensor

from ..numerics.lanes import side_by_side

A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5
PADDING = 1.25  # padding may cost so much more arithmetic than the bare matrices

Size = tuple[int, int]  # rows, columns; rows <= columns


def orthogonalise(x: Tensor, steps: int = STEPS) -> Tensor:
    """Matrices (n, r, c) with r <= c -> nearly orthogonal ones: singular values pushed to about [0.7, 1.2].

    Zero rows and columns stay zero and change nothing else, so a matrix may be padded.
    """
    x = x / (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x


class MatrixBatches:
    """The matrices (out, rest) of many weights, padded to a few common sizes, so that a handful of batched products serves them all."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        shapes = [(weight.shape[0], weight[0].numel()) for weight in weights]
        sizes = common_sizes([_lying(shape) for shape in shapes])
        self.sizes = [(count, *size) for size, count in Counter(sizes).items()]  # (matrices, rows, columns) of each batch
        starts, start = {}, 0
        for count, rows, columns in self.sizes:
            starts[rows, columns] = start
            start += count * rows * columns
        self.total = start
        index = []
        for (out, rest), (rows, columns) in zip(shapes, sizes, strict=True):
            place = torch.arange(rows * columns).view(rows, columns) + starts[rows, columns]
            index.append((place[:out, :rest] if out <= rest else place[:rest, :out].T).flatten())
            starts[rows, columns] += rows * columns
        self.index = torch.cat(index).to(weights[0].device)  # where each element of the vector stands among the padded matrices

    def __call__(self, vector: Tensor) -> Tensor:
        """`orthogonalise` of every matrix; `vector` holds all weights end to end in memory order, and so does the result."""
        padded = vector.new_zeros(self.total).index_copy_(0, self.index, vector)
        batches = padded.split([count * rows * columns for count, rows, columns in self.sizes])
        works = [partial(orthogonalise, batch.view(size)) for batch, size in zip(batches, self.sizes, strict=True)]
        done = side_by_side(works, [padded], lambda matrices: [matrices])
        return torch.cat([matrices.flatten() for matrices in done]).index_select(0, self.index)


def common_sizes(sizes: Sequence[Size]) -> list[Size]:
    """For each matrix the size to pad it to: the cheapest merge first, as long as all together cost at most PADDING times the bare ones."""
    groups = dict(Counter(sizes))  # common size -> matrices
    target = {size: size for size in groups}
    spare = (PADDING - 1) * sum(_cost(size, count) for size, count in groups.items())
    while len(groups) > 1:
        extra, first, second = min((_merging(a, b, groups), a, b) for a, b in combinations(groups, 2))
        if extra > spare:
            break
        spare -= extra
        joint = _joint(first, second)
        count = groups.pop(first) + groups.pop(second)
        groups[joint] = groups.get(joint, 0) + count
        target = {size: joint if common in (first, second) else common for size, common in target.items()}
    return [target[size] for size in sizes]


def _merging(first: Size, second: Size, groups: dict[Size, int]) -> int:
    """Arithmetic that padding two groups to one size adds."""
    apart = _cost(first, groups[first]) + _cost(second, groups[second])
    return _cost(_joint(first, second), groups[first] + groups[second]) - apart


def _cost(size: Size, count: int) -> int:
    """Multiply-adds of one step of the iteration."""
    rows, columns = size
    return count * rows * rows * (2 * columns + rows)


def _joint(first: Size, second: Size) -> Size:
    return max(first[0], second[0]), max(first[1], second[1])


def _lying(shape: Size) -> Size:
    return min(shape), max(shape)

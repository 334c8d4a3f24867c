"""From a mask to the rings around it: exact, along the edges of its cells, with holes and all parts."""

from __future__ import annotations

import numpy as np

from .rings import starts

Array = np.ndarray


def trace(mask: Array) -> tuple[Array, Array]:
    """Rings around the cells of `mask` (h, w) bool, as points (m, 2) float64 at cell corners and ring starts (r + 1,).

    Outer rings run from +x to +y, holes the other way; cells that touch at a corner alone are apart. Filling the rings gives the mask.
    """
    at, towards, after = _edges(mask)
    if not len(at):
        return np.zeros((0, 2)), np.zeros(1, np.int64)
    first, order = _walked(after)
    before = np.empty_like(after)
    before[after] = np.arange(len(after))
    order = order[(towards != towards[before])[order]]  # where the boundary turns
    y, x = np.divmod(at[order], mask.shape[1] + 1)
    return np.stack((x, y), 1).astype(np.float64), starts(np.unique(first[order], return_counts=True)[1])


def _edges(mask: Array) -> tuple[Array, Array, Array]:
    """Unit edges with the mask on their right: the corner where each starts, its direction (0 to 3: +x, +y, -x, -y), the edge after it."""
    padded = np.pad(mask.astype(np.bool_), 1)
    nw, ne, sw, se = padded[:-1, :-1], padded[:-1, 1:], padded[1:, :-1], padded[1:, 1:]  # cells around each corner
    leaving = [np.flatnonzero(edge) for edge in (se & ~ne, sw & ~se, nw & ~sw, ne & ~nw)]
    at = np.concatenate(leaving)
    towards = np.repeat(np.arange(4), [len(part) for part in leaving])
    corners = nw.size
    code = towards * corners + at  # rising
    end = at + np.array([1, nw.shape[1], -1, -nw.shape[1]])[towards]
    after = np.full(len(at), -1)
    for turn in (3, 0, 1):  # left, straight on, right: the last that exists stays with its own cell
        wanted = (towards + turn) % 4 * corners + end
        found = np.minimum(np.searchsorted(code, wanted), max(len(code) - 1, 0))
        after = np.where(code[found] == wanted, found, after)
    return at, towards, after


def _walked(after: Array) -> tuple[Array, Array]:
    """The least edge of each edge's ring, and the edges in the order of their rings; by doubling steps, not by walking."""
    here = np.arange(len(after))
    rounds = len(after).bit_length()
    first, jump = here, after
    for _ in range(rounds):
        first, jump = np.minimum(first, first[jump]), jump[jump]
    begins = first == here
    left, jump = np.where(begins, 0, 1), np.where(begins, here, after)  # steps left to the ring's first edge
    for _ in range(rounds):
        left, jump = left + left[jump], jump[jump]
    return first, np.lexsort((np.where(begins, -len(after), -left), first))

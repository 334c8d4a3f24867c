"""Predicted masks as logits on a coarse grid: full size only on demand, pixel by pixel the same however many there are.

Also targets on such a grid: one bit a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .boxes import Boxes, box_area
from .polygons import Polygons, mask_rings
from .rings import Runs
from .rle import Rle

_BLOCK = 64  # large objects whose whole grids are in memory at once
_LEAST, _ALONE = 0.1, 0.25  # of a bit's logit, at most 1, and what is added for a cell that all others around it contradict
_SMALL = 2048  # cells up to which an object's window is computed alone


@dataclass(frozen=True)
class Masks:
    """n masks of one frame: a pixel is filled where its centre lies in the object's box and the bilinear logit there is positive.

    Only the cells that a box can see are kept: object i has values[start[i]:start[i + 1]], its window row after row.
    """

    boxes: Tensor  # (n, 4) float32 xyxy, pixels of the frame
    values: Tensor  # (T,) float32
    start: Tensor  # (n + 1,) int64
    windows: Tensor  # (n, 4) int64: left, top, width, height in cells
    grids: Tensor  # (n, 3, 3) float64: pixels of the frame -> cells
    extent: ClassVar[bool] = False

    @property
    def data(self) -> Tensor:
        return self.boxes

    def __len__(self) -> int:
        return self.boxes.shape[0]

    def __getitem__(self, index: Tensor | slice) -> Masks:
        chosen = torch.arange(len(self))[index].reshape(-1)
        parts = [self.values[a:b] for a, b in zip(self.start[chosen].tolist(), self.start[chosen + 1].tolist(), strict=True)]
        start = _starts(self.start.diff()[chosen])
        return Masks(self.boxes[chosen], torch.cat([self.values[:0], *parts]), start, self.windows[chosen], self.grids[chosen])

    def warp(self, matrix: Tensor) -> Masks:
        """The boxes' bounding boxes; the grids follow exactly."""
        return replace(self, boxes=Boxes(self.boxes).warp(matrix).data, grids=self.grids @ torch.linalg.inv(matrix.double()))

    def clip(self, height: int, width: int) -> Masks:
        return replace(self, boxes=Boxes(self.boxes).clip(height, width).data)

    def bounds(self) -> Tensor:
        return self.boxes

    def visible(self, height: int, width: int) -> Tensor:
        return box_area(Boxes(self.boxes).clip(height, width).data) / box_area(self.boxes).clamp(min=1e-9)

    def to(self, device: torch.device | str) -> Masks:
        return Masks(*(part.to(device) for part in (self.boxes, self.values, self.start, self.windows, self.grids)))

    @classmethod
    def cat(cls, parts: Sequence[Masks]) -> Masks:
        boxes, values, windows, grids = (torch.cat([getattr(p, name) for p in parts]) for name in ("boxes", "values", "windows", "grids"))
        return cls(boxes, values, _starts(torch.cat([part.start.diff() for part in parts])), windows, grids)

    @classmethod
    def empty(cls) -> Masks:
        none = torch.zeros(0, 4)
        return cls(none, torch.zeros(0), torch.zeros(1, dtype=torch.int64), none.long(), torch.zeros(0, 3, 3, dtype=torch.float64))

    @classmethod
    def of_prototypes(cls, coefficients: Tensor, prototypes: Tensor, boxes: Tensor, stride: float = 4.0) -> Masks:
        """Masks sum_k c_k P_k (arXiv 2606.03748, Eq. 7) of (n, K) coefficients and (K, h, w) prototypes, cut to boxes (n, 4).

        Summed in float64, and by the size of its own window, so that a mask does not depend on what is computed beside it.
        """
        height, width = prototypes.shape[-2:]
        windows = _windows(boxes, height, width, stride)
        large = windows[:, 2] * windows[:, 3] > _SMALL
        values = [prototypes.new_zeros(0)] * len(boxes)
        for i in (~large).nonzero()[:, 0].tolist():
            x, y, w, h = windows[i].tolist()
            seen = prototypes[:, y : y + h, x : x + w].reshape(len(prototypes), -1).double()
            values[i] = (coefficients[i].double() @ seen).float()
        for rows in large.nonzero()[:, 0].split(_BLOCK):
            grids = (coefficients[rows].double() @ prototypes.double().flatten(1)).float().unflatten(1, (height, width))
            for i, grid, (x, y, w, h) in zip(rows.tolist(), grids, windows[rows].tolist(), strict=True):
                values[i] = grid[y : y + h, x : x + w].reshape(-1)
        grid = torch.diag(torch.tensor([1 / stride, 1 / stride, 1.0], dtype=torch.float64))
        start = _starts(windows[:, 2] * windows[:, 3])
        return cls(boxes, torch.cat([prototypes.new_zeros(0), *values]), start, windows, grid.expand(len(boxes), 3, 3))

    @classmethod
    def of_cells(cls, cells: Iterable[np.ndarray], stride: float = 1.0) -> Masks:
        """Masks of bits (h, w), one grid an object, with smooth edges: each cell's centre is filled or not as its bit says.

        Between the centres lies where a blurred copy changes its sign, so that no stairs are seen however large the cells are drawn.
        """
        parts = [_smooth(bits) for bits in cells]
        values, windows, boxes = zip(*parts, strict=True) if parts else ((), (), ())
        grid = torch.diag(torch.tensor([1 / stride, 1 / stride, 1.0], dtype=torch.float64))
        return cls(
            torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4) * stride,
            torch.from_numpy(np.concatenate([np.zeros(0, np.float32), *(part.reshape(-1) for part in values)])),
            _starts(torch.tensor([part.size for part in values], dtype=torch.int64)),
            torch.tensor(windows, dtype=torch.int64).reshape(-1, 4),
            grid.expand(len(parts), 3, 3),
        )

    def crops(self, limits: tuple[int, int, int, int] | None = None) -> Iterator[tuple[np.ndarray, int, int]]:
        """Of each object the pixels that its box can hold, (h, w) bool, and where they begin: left, top. One at a time.

        Pixels beyond `limits`, xyxy, are left out.
        """
        edges = np.ceil(self.boxes.double().numpy() - 0.5).astype(np.int64)  # pixels whose centre is in [low, high)
        if limits is not None:
            edges = edges.reshape(-1, 2, 2).clip(limits[:2], limits[2:]).reshape(-1, 4)
        values, start = self.values.numpy(), self.start.tolist()
        for i, ((left, top, right, bottom), (x, y, w, h)) in enumerate(zip(edges.tolist(), self.windows.tolist(), strict=True)):
            pixels = np.arange(left, right) + 0.5, np.arange(top, bottom) + 0.5
            logits = values[start[i] : start[i + 1]].reshape(h, w)
            yield _filled(logits, self.grids[i].numpy(), (x + 0.5, y + 0.5), *pixels), left, top

    def dense(self, height: int, width: int) -> Tensor:
        """(n, height, width) bool, all of it in memory: index a few objects first where there are many."""
        full = torch.zeros(len(self), height, width, dtype=torch.bool)
        for mask, (crop, left, top) in zip(full.numpy(), self.crops(), strict=True):
            inside = crop[max(-top, 0) : height - top if height > top else 0, max(-left, 0) : width - left if width > left else 0]
            mask[max(top, 0) : max(top, 0) + inside.shape[0], max(left, 0) : max(left, 0) + inside.shape[1]] = inside
        return full

    def rle(self, height: int, width: int) -> Rle:
        """The run-length codes of the masks in their frame; memory is that of one crop."""
        kept = self.clip(height, width)
        found = [_columns(crop, i, left, top) for i, (crop, left, top) in enumerate(kept.crops())]
        runs = Runs(*(np.concatenate([np.zeros(0, np.int64), *parts]) for parts in zip(*found, strict=True))) if found else _NO_RUNS
        return Rle.of_runs(runs, len(self), height, width)

    def polygons(self) -> Polygons:
        """The outlines of the masks' pixels, with every part and hole; filled, they give the masks."""
        return Polygons.from_rings([mask_rings(crop, left, top) for crop, left, top in self.crops()])


_NO_RUNS = Runs(*(np.zeros(0, np.int64) for _ in range(4)))


def pack_bits(masks: Tensor) -> Tensor:
    """(..., w) bool -> (..., w / 8) uint8, the first cell in the highest bit; w is filled up to a multiple of 8."""
    return torch.from_numpy(np.packbits(masks.numpy(), axis=-1))


def unpack_bits(packed: Tensor) -> Tensor:
    """(..., w / 8) uint8 -> (..., w) bool, on any device."""
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
    return ((packed[..., None] >> shifts) & 1).bool().flatten(-2)


def _smooth(bits: np.ndarray) -> tuple[np.ndarray, tuple[int, ...], tuple[float, ...]]:
    """Logits of bits (h, w) with their signs, their window, and the box in which they can be positive, in cells."""
    height, width = bits.shape
    rows, columns = np.flatnonzero(bits.any(1)), np.flatnonzero(bits.any(0))
    if not len(rows):
        return np.full((1, 1), -1, np.float32), (0, 0, 1, 1), (0.0, 0.0, 0.0, 0.0)
    (left, top), (right, bottom) = (columns[0], rows[0]), (columns[-1] + 1, rows[-1] + 1)
    x, y = max(left - 1, 0), max(top - 1, 0)
    part = bits[y : bottom + 1, x : right + 1]
    signs = np.where(part, np.float32(1), np.float32(-1))
    blurred = np.pad(signs, 2, mode="edge")
    for _ in range(2):
        blurred = (blurred[:-2] + 2 * blurred[1:-1] + blurred[2:]) / 4
        blurred = (blurred[:, :-2] + 2 * blurred[:, 1:-1] + blurred[:, 2:]) / 4
    agreed = signs * blurred
    box = (max(left - 0.5, 0), max(top - 0.5, 0), min(right + 0.5, width), min(bottom + 0.5, height))
    logits = signs * np.maximum(agreed, _LEAST - _ALONE * agreed.clip(max=0))
    return logits, (int(x), int(y), part.shape[1], part.shape[0]), tuple(float(side) for side in box)


def _windows(boxes: Tensor, height: int, width: int, stride: float) -> Tensor:
    """The cells that pixels in each box are interpolated from, (n, 4) int64: left, top, width, height; one at least."""
    limit = torch.tensor([width - 1, height - 1])
    cells = boxes.double() / stride - 0.5
    low = cells[:, :2].floor().long().clamp(min=0).minimum(limit)
    high = (cells[:, 2:].floor().long() + 1).clamp(min=0).minimum(limit).maximum(low)
    return torch.cat((low, high - low + 1), 1)


def _filled(logits: np.ndarray, grid: np.ndarray, origin: tuple[float, float], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where bilinear values of `logits` (h, w) at pixel centres are positive, (len(y), len(x)) bool; `origin` is the first cell's centre.

    Edges are continued. Where the plane was turned, the box is larger than what the cells cover: beyond them nothing is filled.
    """
    if grid[0, 1] == 0 and grid[1, 0] == 0:
        u, v = grid[0, 0] * x + grid[0, 2] - origin[0], grid[1, 1] * y + grid[1, 2] - origin[1]
        return _positive(np.ascontiguousarray(_between(logits.T, u).T), v)
    u = grid[0, 0] * x[None] + grid[0, 1] * y[:, None] + grid[0, 2] - origin[0]
    v = grid[1, 0] * x[None] + grid[1, 1] * y[:, None] + grid[1, 2] - origin[1]
    (left, right, fx), (up, down, fy) = _cells(u, logits.shape[1]), _cells(v, logits.shape[0])
    upper = logits[up, left] + (logits[up, right] - logits[up, left]) * fx
    lower = logits[down, left] + (logits[down, right] - logits[down, left]) * fx
    covered = (abs(u - (logits.shape[1] - 1) / 2) <= logits.shape[1] / 2) & (abs(v - (logits.shape[0] - 1) / 2) <= logits.shape[0] / 2)
    return covered & (upper + (lower - upper) * fy > 0)


def _between(rows: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Rows at fractional places `at` (k,)."""
    low, high, share = _cells(at, len(rows))
    return rows[low] + (rows[high] - rows[low]) * share[:, None]


def _positive(rows: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Where rows (n, w) at fractional places `at` (k,) are positive, (k, w) bool: as between two rows, if both have one sign there."""
    low, high, share = _cells(at, len(rows))
    filled = np.empty((len(at), rows.shape[1]), np.bool_)
    signs = rows > 0
    begins = np.flatnonzero(np.diff(low, prepend=-1)).tolist()
    for begin, end in pairwise([*begins, len(at)]):
        a, b = low[begin], high[begin]
        filled[begin:end] = signs[a]
        mixed = np.flatnonzero(signs[a] != signs[b])
        if len(mixed):
            filled[begin:end, mixed] = rows[a, mixed] + (rows[b, mixed] - rows[a, mixed]) * share[begin:end, None] > 0
    return filled


def _cells(at: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cells before and after each place, and how far it lies between them, float32 in [0, 1]."""
    at = at.clip(0, count - 1)
    low = at.astype(np.int64)
    return low, np.minimum(low + 1, count - 1), (at - low).astype(np.float32)


def _columns(crop: np.ndarray, number: int, left: int, top: int) -> tuple[np.ndarray, ...]:
    """The fields of Runs along the columns of one crop."""
    lines = np.pad(crop.T, ((0, 0), (0, 1))).reshape(-1)  # an empty pixel below each column
    edges = np.flatnonzero(np.diff(lines, prepend=False))
    column, row = np.divmod(edges[::2], crop.shape[0] + 1)
    start = row + top
    return np.full(len(column), number), column + left, start, start + edges[1::2] - edges[::2]


def _starts(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))

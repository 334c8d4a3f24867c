"""Run-length codes of COCO: masks read column by column, as counts of empty and filled pixels in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .affine import transform_points
from .rings import Runs, owner, runs, starts
from .tracing import trace

_GROUPS = 13  # of five bits, enough for 64


@dataclass(frozen=True)
class Rle:
    """n masks of one frame: mask i has counts[start[i]:start[i + 1]], empty first."""

    counts: Tensor  # (K,) int64
    start: Tensor  # (n + 1,) int64
    height: int
    width: int
    extent: ClassVar[bool] = False

    @property
    def data(self) -> Tensor:
        return self.counts

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, index: Tensor | slice) -> Rle:
        chosen = torch.arange(len(self))[index].reshape(-1)
        parts = [self.counts[a:b] for a, b in zip(self.start[chosen].tolist(), self.start[chosen + 1].tolist(), strict=True)]
        start = torch.nn.functional.pad(self.start.diff()[chosen].cumsum(0), (1, 0))
        return Rle(torch.cat([self.counts[:0], *parts]), start, self.height, self.width)

    def warp(self, matrix: Tensor) -> Rle:
        """The moved outlines of the pixels, filled again, in a frame that reaches from the origin to where the old one now ends."""
        traced = [trace(self[i : i + 1].decode()[0].numpy()) for i in range(len(self))]
        points = np.concatenate([np.zeros((0, 2)), *(part for part, _ in traced)])
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(rings) for _, rings in traced)])
        objects = starts(np.array([len(rings) - 1 for _, rings in traced], np.int64))
        moved = transform_points(matrix, torch.from_numpy(points)).numpy()
        corners = torch.tensor([[0, 0], [self.width, 0], [0, self.height], [self.width, self.height]], dtype=torch.float64)
        width, height = (transform_points(matrix, corners).amax(0) - 1e-6).ceil().long().clamp(min=0).tolist()
        return Rle.of_runs(runs(moved[:, ::-1], starts(lengths), objects, width, height), len(self), height, width)

    def clip(self, height: int, width: int) -> Rle:
        if height >= self.height and width >= self.width:
            return self
        return Rle.of_masks(self.decode()[:, :height, :width])

    def bounds(self) -> Tensor:
        """(n, 4) xyxy around the filled pixels; zeros for an empty mask."""
        counts, place = self.counts.numpy(), np.arange(len(self.counts)) - np.repeat(self.start.numpy()[:-1], self.start.diff().numpy())
        own = owner(self.start.numpy())
        ends = np.cumsum(counts) - own * self.height * self.width
        filled = (place % 2 == 1) & (counts > 0)
        own, first, last = own[filled], (ends - counts)[filled], ends[filled] - 1
        columns, rows = zip(*(np.divmod(end, max(self.height, 1)) for end in (first, last)), strict=True)
        several = columns[1] > columns[0]  # such a run holds the last row of one column and the first of the next
        low = np.stack((columns[0], np.where(several, 0, rows[0])), 1)
        high = np.stack((columns[1], np.where(several, self.height - 1, rows[1])), 1) + 1
        bounds, index = torch.zeros(len(self), 4), torch.from_numpy(own)[:, None].expand(-1, 2)
        bounds[:, :2].scatter_reduce_(0, index, torch.from_numpy(low).float(), "amin", include_self=False)
        bounds[:, 2:].scatter_reduce_(0, index, torch.from_numpy(high).float(), "amax", include_self=False)
        return bounds

    def visible(self, height: int, width: int) -> Tensor:
        return (self.clip(height, width).areas() / self.areas().clamp(min=1)).float()

    def to(self, device: torch.device | str) -> Rle:
        return Rle(self.counts.to(device), self.start.to(device), self.height, self.width)

    @classmethod
    def cat(cls, parts: Sequence[Rle]) -> Rle:
        lengths = torch.cat([part.start.diff() for part in parts])
        start = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        return cls(torch.cat([part.counts for part in parts]), start, parts[0].height, parts[0].width)

    @classmethod
    def empty(cls) -> Rle:
        return cls(torch.zeros(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), 0, 0)

    @classmethod
    def of_runs(cls, found: Runs, count: int, height: int, width: int) -> Rle:
        """Masks whose filled pixels are runs along columns (`found.line` is x)."""
        start, end = found.line * height + found.start, found.line * height + found.end
        if len(start):  # a run that reaches the bottom goes on at the top of the next column
            apart = (np.diff(found.object) != 0) | (start[1:] > end[:-1])
            begins, ends = np.concatenate(([True], apart)), np.concatenate((apart, [True]))
            own, start, end = found.object[begins], start[begins], end[ends]
        else:
            own = found.object
        lengths = 2 * np.bincount(own, minlength=count) + 2  # 0, start, end, ..., all pixels
        limits = np.zeros(lengths.sum(), np.int64)
        last = np.cumsum(lengths) - 1
        limits[last] = height * width
        place = 2 * np.arange(len(own)) + 2 * own + 1
        limits[place], limits[place + 1] = start, end
        counts = np.diff(limits, append=0)
        kept = np.ones(len(counts), np.bool_)
        kept[last] = False
        kept[last - 1] = counts[last - 1] > 0  # no empty run at the end
        return cls(torch.from_numpy(counts[kept]), torch.from_numpy(starts(np.add.reduceat(kept, last - lengths + 1))), height, width)

    @classmethod
    def of_masks(cls, masks: Tensor) -> Rle:
        """Codes of (n, h, w) bool masks."""
        count, height, width = masks.shape
        lines = np.pad(masks.numpy().transpose(0, 2, 1), ((0, 0), (0, 0), (0, 1))).reshape(-1)  # an empty pixel below each column
        edges = np.flatnonzero(np.diff(lines, prepend=False))
        (column, start), length = np.divmod(edges[::2], height + 1), edges[1::2] - edges[::2]
        return cls.of_runs(Runs(column // width, column % width, start, start + length), count, height, width)

    def decode(self) -> Tensor:
        """(n, h, w) bool."""
        counts = self.counts.numpy()
        place = np.arange(len(counts)) - self.start.numpy()[:-1].repeat(np.diff(self.start.numpy()))
        flat = np.repeat(place % 2 == 1, counts)
        return torch.from_numpy(flat).reshape(len(self), self.width, self.height).mT

    def crop(self, i: int, left: int, top: int, right: int, bottom: int) -> np.ndarray:
        """The pixels of mask i in a part of the frame, (bottom - top, right - left) bool; no column beside it is decoded."""
        ends = np.cumsum(self.counts[self.start[i] : self.start[i + 1]].numpy()).clip(left * self.height, right * self.height)
        flat = np.repeat(np.arange(len(ends)) % 2 == 1, np.diff(ends, prepend=left * self.height))
        return flat.reshape(right - left, self.height)[:, top:bottom].T

    def areas(self) -> Tensor:
        """(n,) int64 filled pixels."""
        own = torch.from_numpy(owner(self.start.numpy()))
        odd = (torch.arange(len(self.counts)) - self.start[own]) % 2
        return torch.zeros(len(self), dtype=torch.int64).scatter_add(0, own, self.counts * odd)

    def coco(self) -> list[dict[str, Any]]:
        """{"size": [h, w], "counts": text} of each mask, as COCO files hold them."""
        return [{"size": [self.height, self.width], "counts": text} for text in compress(self.counts.numpy(), self.start.numpy())]

    @classmethod
    def from_coco(cls, code: Mapping[str, Any]) -> Rle:
        """One mask from a COCO code with a text or a list of counts; ValueError where it does not fill its size exactly."""
        height, width = (int(side) for side in code["size"])
        given = code["counts"]
        counts = decompress(given) if isinstance(given, str | bytes) else np.asarray(given, np.int64).reshape(-1)
        if height < 1 or width < 1 or (len(counts) and counts.min() < 0) or counts.sum() != height * width:
            raise ValueError(f"expected counts that add up to {height} x {width}, got {int(counts.sum())}")
        return cls(torch.from_numpy(counts), torch.tensor([0, len(counts)]), height, width)


def compress(counts: np.ndarray, start: np.ndarray) -> list[str]:
    """The text of each row of counts: differences to the last but one, in groups of five bits, lowest first."""
    place = np.arange(len(counts)) - start[:-1].repeat(np.diff(start))
    value = counts.astype(np.int64)
    later = np.flatnonzero(place > 2)
    value[later] -= counts[later - 2]
    groups = np.zeros((len(value), _GROUPS), np.uint8)
    used = np.zeros(groups.shape, np.bool_)
    more = np.ones(len(value), np.bool_)
    for k in range(_GROUPS):
        used[:, k] = more
        bits, value = value & 31, value >> 5
        more = more & np.where(bits & 16, value != -1, value != 0)
        groups[:, k] = bits + 32 * more + 48
        if not more.any():
            break
    ends = np.concatenate(([0], np.cumsum(used.sum(1))))[start]
    text = groups[used].tobytes().decode("ascii")
    return [text[a:b] for a, b in pairwise(ends.tolist())]


def decompress(text: str | bytes) -> np.ndarray:
    """Counts (k,) int64 of one text; ValueError where it is not such a text."""
    data = text.encode("latin-1", "replace") if isinstance(text, str) else text
    codes = np.frombuffer(data, np.uint8).astype(np.int64) - 48
    if len(codes) == 0 or codes.min() < 0 or codes.max() > 63 or codes[-1] & 32:
        raise ValueError("expected a COCO run-length text, got other characters or a cut one")
    last = np.flatnonzero(codes & 32 == 0)
    begins = np.concatenate(([0], last[:-1] + 1))
    place = np.arange(len(codes)) - np.repeat(begins, last - begins + 1)
    if place.max() >= 12:
        raise ValueError("expected counts below 2^59 in a COCO run-length text, got a longer group")
    value = np.add.reduceat((codes & 31) << (5 * place), begins)
    value -= np.where(codes[last] & 16, np.int64(1) << (5 * (place[last] + 1)), 0)
    value[1::2] = np.cumsum(value[1::2])
    value[2::2] = np.cumsum(value[2::2])
    return value

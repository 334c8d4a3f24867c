"""Samples -> Packed, in the worker: one buffer of pixels, targets padded to a length from a short ladder so that shapes recur."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from ..geometry.affine import stack_matrices
from ..geometry.polygons import cells_inside
from ..rules import STRIDES
from ..types import Instances, Layer, Packed, Regions, Sample, Targets
from .ring import Drawn, Slot

Extras = Callable[[Instances, int], Mapping[str, Tensor]]


def ladder(count: int) -> int:
    """The smallest of 4, 8, 16, 32, ... that holds `count` objects."""
    return max(4, 1 << max(count - 1, 0).bit_length())


def collate(samples: Sequence[Sample], size: int, extras: Extras, warped: bool, ignored: bool = False) -> Packed:
    """What a worker sends for one batch; `extras` is the task's `targets`, `warped` says that pixels are still to be resampled.

    With `ignored` the targets name the regions to be ignored, whether or not this batch has one, so that shapes recur.
    Of `Drawn` samples all tensors go into their slot, as far as they fit.
    """
    mixed = tuple(i for i, sample in enumerate(samples) if len(sample.layers) > 1)
    layers = [sample.layers[0] for sample in samples] + [samples[i].layers[1] for i in mixed]
    slot = samples.slot if isinstance(samples, Drawn) else None
    packed = Packed(
        buffer=_buffer(layers, slot),
        sizes=tuple((layer.pixels.shape[0], layer.pixels.shape[1]) for layer in layers),
        matrices=stack_matrices([layer.matrix for layer in layers]),
        color=torch.stack([sample.color for sample in samples]),
        mixed=mixed,
        share=torch.tensor([samples[i].share for i in mixed], dtype=torch.float32).reshape(-1, 1, 1, 1),
        size=size,
        warped=warped,
        targets=targets([sample.instances for sample in samples], size, extras, ignored),
        metas=tuple(sample.meta for sample in samples),
    )
    return packed if slot is None else slot.seal(packed)


def targets(objects: Sequence[Instances], size: int, extras: Extras, ignored: bool = False) -> Targets:
    """Objects of B images as padded tensors (B, N, ...), without those marked to be ignored, which make regions if `ignored`."""
    taught = [part if part.ignore is None else part[~part.ignore] for part in objects]
    length = ladder(max(len(part) for part in taught))
    more = [extras(part, size) for part in taught]
    return Targets(
        labels=_pad([part.labels for part in taught], length),
        valid=_pad([torch.ones(len(part), dtype=torch.bool) for part in taught], length),
        boxes=_pad([part.shapes["boxes"].bounds().float() for part in taught], length),
        extras={name: _pad([rows[name] for rows in more], length) for name in more[0]},
        ignored=_regions(objects, size) if ignored else None,
    )


def _regions(objects: Sequence[Instances], size: int) -> Regions:
    """Anchors inside what is to be ignored, by class."""
    labels, cells = [], []
    for part in objects:
        crowds = part[:0] if part.ignore is None else part[part.ignore]
        levels = [cells_inside(crowds.extent(), size // stride, size // stride, stride).flatten(1) for stride in STRIDES]
        inside, own = torch.cat(levels, 1), crowds.labels.unique()
        labels.append(own)
        cells.append((inside[None] & (crowds.labels == own[:, None])[..., None]).any(1))
    length = ladder(max(map(len, labels)))
    return Regions(_pad(labels, length), _pad(cells, length))


def _pad(parts: Sequence[Tensor], length: int) -> Tensor:
    padded = parts[0].new_zeros(len(parts), length, *parts[0].shape[1:])
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    return padded


def _buffer(layers: Sequence[Layer], slot: Slot | None) -> Tensor:
    """All pixels end to end; in a worker they are written straight into memory that the trainer reads."""
    total = sum(layer.pixels.numel() for layer in layers)
    parts = [layer.pixels for layer in layers]
    placed = None if slot is None else slot.pixels(parts)
    if placed is not None:
        return placed
    if get_worker_info() is None:
        buffer = torch.empty(total, dtype=torch.uint8)
    else:
        buffer = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(total, device="cpu"))
    for place, part in zip(buffer.split([part.numel() for part in parts]), parts, strict=True):
        place.view(part.shape).copy_(part)
    return buffer

"""Mask losses and mask overlap on the prototype grid, in blocks: memory does not grow with the number of pairs.

Nothing of the size pairs x cells outlives its block: the backward pass computes each block again. A block's logits are a product of
coefficients (B, p, K) and prototypes (B, K, h, w); targets are bits (B, N, h, w / 8), one row an object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from ..geometry.masks import unpack_bits
from ..numerics.islands import autocast_off
from ..types import Pairs

CELL = 4.0  # pixels of the canvas to a cell of the prototype grid
BLOCK = {"cpu": 1 << 21, "cuda": 1 << 25}  # cells that are computed at once
OFFSETS = {"index": 0.0, "centre": 0.5}  # where in its cell a cell is looked at, to tell whether a box holds it


def mask_bce(pairs: Pairs, cells: str = "index") -> Tensor:
    """Binary cross-entropy over the cells of the true box, divided by its area in cells, (B, P) (arXiv 1904.02689, 3.1).

    `cells`: a box holds the cells whose "index", or whose "centre", lies in [x1, x2) x [y1, y2).
    """
    bits = pairs.objects["masks"]
    coefficients, proto = pairs.outputs["coefficients"], pairs.shared["proto"]
    dtype = torch.promote_types(torch.float32, proto.dtype)
    boxes = pairs.truth["boxes"].detach() / CELL
    arguments = coefficients.to(dtype), proto.to(dtype), bits, pairs.object, boxes, OFFSETS[cells]
    loss: Tensor = _CroppedBce.apply(*arguments)
    return loss


class _CroppedBce(torch.autograd.Function):
    """Sums of BCE over a crop, over the crop's area; the gradient is that of the same sums, computed again block by block."""

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, proto: Tensor, bits: Tensor, owner: Tensor, boxes: Tensor, offset: float) -> Tensor:
        ctx.save_for_backward(coefficients, proto, bits, owner, boxes)
        ctx.offset = offset
        loss = coefficients.new_zeros(boxes.shape[:2])
        for part in _blocks(boxes.shape[1], proto):
            logits = coefficients[:, part] @ proto.flatten(2)  # (B, p, h w)
            target = _targets(bits, owner[:, part])
            crop = _crop(boxes[:, part], proto.shape[-2:], offset)
            loss[:, part] = ((softplus(logits) - torch.where(target, logits, 0)) * crop).sum(-1)
        return loss / _areas(boxes)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        coefficients, proto, bits, owner, boxes = ctx.saved_tensors
        scale = (grads[0] / _areas(boxes))[..., None]
        flat = proto.flatten(2)
        of_coefficients, of_proto = torch.empty_like(coefficients), torch.zeros_like(flat)
        with autocast_off(proto.device):
            for part in _blocks(boxes.shape[1], proto):
                logits = coefficients[:, part] @ flat
                target = _targets(bits, owner[:, part])
                crop = _crop(boxes[:, part], proto.shape[-2:], ctx.offset)
                slope = (logits.sigmoid_() - target.to(logits.dtype)) * (crop * scale[:, part])
                of_coefficients[:, part] = slope @ flat.mT
                of_proto.baddbmm_(coefficients[:, part].mT, slope)
        return of_coefficients, of_proto.view_as(proto), None, None, None, None


@torch.no_grad()
def mask_iou(coefficients: Tensor, proto: Tensor, boxes: Tensor, bits: Tensor, cells: str = "index") -> Tensor:
    """IoU (B, n, r) of hard predicted masks, cut to their predicted boxes (B, n, r, 4) in pixels, with the masks of n objects.

    coefficients (B, n, r, K); proto (B, K, h, w); bits (B, n, h, w / 8).
    """
    batch, objects, looks, _ = coefficients.shape
    flat, size = proto.float().flatten(2), proto.shape[-2:]
    owner = torch.arange(objects, device=proto.device).repeat_interleave(looks).expand(batch, -1)
    coefficients, boxes = coefficients.float().flatten(1, 2), boxes.flatten(1, 2) / CELL  # (B, n r, ...)
    both, own = (boxes.new_zeros(boxes.shape[:2]) for _ in range(2))
    for part in _blocks(boxes.shape[1], proto):
        hard = (coefficients[:, part] @ flat > 0) & _crop(boxes[:, part], size, OFFSETS[cells])
        own[:, part] = hard.sum(-1).float()
        both[:, part] = (hard & _targets(bits, owner[:, part])).sum(-1).float()
    union = own + count_bits(bits).repeat_interleave(looks, 1) - both
    return (both / union.clamp(min=1)).unflatten(1, (objects, looks))


def semantic_loss(logits: Tensor, bits: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
    """Half the mean BCE and half the mean Dice loss (smoothing 1, by class) against the class map of the objects, (B,).

    logits (B, C, h, w); bits (B, N, 2 h, w / 4) of the objects, of which the smallest owns a cell; labels, valid (B, N).
    """
    logits = logits.float()
    shown = class_map(bits, labels, valid)  # (B, h, w), -1 where there is nothing
    target = (shown[:, None] == torch.arange(logits.shape[1], device=logits.device)[:, None, None]).float()
    p = logits.sigmoid()
    dice = 1 - (2 * (p * target).sum((2, 3)) + 1) / ((p + target).sum((2, 3)) + 1)  # (B, C)
    return 0.5 * binary_cross_entropy_with_logits(logits, target, reduction="none").mean((1, 2, 3)) + 0.5 * dice.mean(1)


@torch.no_grad()
def class_map(bits: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
    """The class at every second cell, (B, h / 2, w / 2) int64; -1 where no object is. The smallest object owns a cell."""
    batch, objects, height, bytes_ = bits.shape
    area = torch.where(valid, count_bits(bits), torch.inf)
    rank = area.argsort(dim=1, stable=True).argsort(dim=1)  # 0 is the smallest
    first = bits.new_full((batch, height // 2, bytes_ * 4), objects, dtype=torch.int64)
    step = max(1, _cells(bits.device) // (batch * height * bytes_ * 8))
    for start in range(0, objects, step):
        part = slice(start, start + step)
        inside = unpack_bits(bits[:, part, ::2])[..., ::2] & valid[:, part, None, None]
        first = torch.minimum(first, torch.where(inside, rank[:, part, None, None], objects).amin(1))
    by_rank = torch.full_like(labels[:, :1], -1).expand(-1, objects + 1).scatter(1, rank, labels)
    return by_rank.gather(1, first.flatten(1)).view_as(first)


def count_bits(bits: Tensor) -> Tensor:
    """Filled cells of each mask (..., h, w / 8), (...,) float32."""
    value = bits.to(torch.int16)
    value = value - ((value >> 1) & 0x55)
    value = (value & 0x33) + ((value >> 2) & 0x33)
    return ((value + (value >> 4)) & 0x0F).sum((-2, -1)).float()


def _blocks(pairs: int, proto: Tensor) -> Iterator[slice]:
    step = max(1, _cells(proto.device) // (proto.shape[0] * proto.shape[-2] * proto.shape[-1]))
    return (slice(start, min(start + step, pairs)) for start in range(0, pairs, step))


def _cells(device: torch.device) -> int:
    return BLOCK.get(device.type, BLOCK["cpu"])


def _targets(bits: Tensor, owner: Tensor) -> Tensor:
    """The masks of objects `owner` (B, p) as (B, p, h w) bool."""
    rows = torch.arange(len(bits), device=bits.device)[:, None]
    return unpack_bits(bits[rows, owner]).flatten(2)


def _crop(boxes: Tensor, size: torch.Size, offset: float) -> Tensor:
    """Which cells boxes (B, p, 4), in cells, hold: (B, p, h w) bool."""
    x1, y1, x2, y2 = boxes[..., None].unbind(-2)  # (B, p, 1) each
    y, x = (torch.arange(side, device=boxes.device) + offset for side in size)
    rows, columns = (y >= y1) & (y < y2), (x >= x1) & (x < x2)
    return (rows[..., :, None] & columns[..., None, :]).flatten(2)


def _areas(boxes: Tensor) -> Tensor:
    """Areas (B, p) in cells; 1 for a box without."""
    w, h = (boxes[..., 2:] - boxes[..., :2]).unbind(-1)
    return torch.where(w * h > 0, w * h, 1.0)

"""Mask losses and mask overlap on the prototype grid, with memory that does not grow with pairs x cells.

The backward pass computes the logits again. Targets are bits (B, N, h, w / 8), one row an object.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ..geometry.masks import unpack_bits
from ..numerics.islands import autocast_off, full
from ..numerics.kernels import compiled
from ..types import Pairs, Regions
from . import mask_blocks

CELL = 4.0  # pixels of the canvas to a cell of the prototype grid
OFFSETS = {"index": 0.0, "centre": 0.5}  # where in its cell a cell is looked at, to tell whether a box holds it


def mask_bce(pairs: Pairs, cells: str = "index") -> Tensor:
    """Binary cross-entropy over the cells of the true box, divided by its area in cells, (B, P) (arXiv 1904.02689, 3.1).

    `cells`: a box holds the cells whose "index", or whose "centre", lies in [x1, x2) x [y1, y2).
    """
    coefficients, proto = pairs.outputs["coefficients"], pairs.shared["proto"]
    dtype = torch.promote_types(torch.float32, proto.dtype)
    boxes = (pairs.truth["boxes"].detach() / CELL).contiguous()
    arguments = coefficients.to(dtype), proto.to(dtype), pairs.objects["masks"], pairs.object, boxes, OFFSETS[cells]
    loss: Tensor = _CroppedBce.apply(*arguments)
    return loss


class _CroppedBce(torch.autograd.Function):
    """Sums of BCE over a crop, over the crop's area; the gradient is that of the same sums."""

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, proto: Tensor, bits: Tensor, owner: Tensor, boxes: Tensor, offset: float) -> Tensor:
        inputs = coefficients.contiguous(), _cells_first(proto), bits.contiguous(), owner.contiguous(), boxes
        ctx.save_for_backward(*inputs)
        ctx.offset = offset
        return _backend(proto).bce_sums(inputs, offset) / _areas(boxes)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        with autocast_off(inputs[0].device):
            scale = (grads[0] / _areas(inputs[4])).contiguous()
            of_coefficients, of_proto = _backend(inputs[1]).bce_gradients(inputs, ctx.offset, scale)
        return of_coefficients, of_proto.permute(0, 3, 1, 2), None, None, None, None


@torch.no_grad()
def mask_iou(coefficients: Tensor, proto: Tensor, boxes: Tensor, bits: Tensor, cells: str = "index") -> Tensor:
    """IoU (B, n, r) of hard predicted masks, cut to their predicted boxes (B, n, r, 4) in pixels, with the masks of n objects.

    coefficients (B, n, r, K); proto (B, K, h, w); bits (B, n, h, w / 8).
    """
    batch, objects, looks, _ = coefficients.shape
    owner = torch.arange(objects, device=proto.device).repeat_interleave(looks).expand(batch, -1).contiguous()
    proto, boxes = full(proto), (full(boxes) / CELL).flatten(1, 2).contiguous()
    inputs = full(coefficients).flatten(1, 2).contiguous(), _cells_first(proto), bits.contiguous(), owner, boxes
    own, both = _backend(proto).overlap_counts(inputs, OFFSETS[cells])
    union = own + count_bits(bits).repeat_interleave(looks, 1) - both
    return (both / union.clamp(min=1)).unflatten(1, (objects, looks))


def semantic_loss(logits: Tensor, bits: Tensor, labels: Tensor, valid: Tensor, ignored: Regions | None = None) -> Tensor:
    """Half the mean BCE and half the mean Dice loss (smoothing 1, by class) against the class map of the objects, (B,).

    logits (B, C, h, w); bits (B, N, 2 h, w / 4) of the objects, of which the smallest owns a cell; labels, valid (B, N). A class is left
    out at cells in its `ignored` regions, whose first h x w anchors those are, unless an object of it is there.
    """
    logits = full(logits)
    shown = class_map(bits, labels, valid)  # (B, h, w), -1 where there is nothing
    target = (shown[:, None] == torch.arange(logits.shape[1], device=logits.device)[:, None, None]).to(logits.dtype)
    p, cost = logits.sigmoid(), binary_cross_entropy_with_logits(logits, target, reduction="none")
    if ignored is not None:
        named = (ignored.labels[:, None] == torch.arange(logits.shape[1], device=logits.device)[:, None]).to(logits.dtype)  # (B, C, K)
        crowded = (named @ ignored.cells[..., : shown[0].numel()].to(logits.dtype)).view_as(logits)
        counted = (crowded == 0) | (target > 0)
        p, cost = p * counted, cost * counted
    dice = 1 - (2 * (p * target).sum((2, 3)) + 1) / ((p + target).sum((2, 3)) + 1)  # (B, C)
    return 0.5 * cost.mean((1, 2, 3)) + 0.5 * dice.mean(1)


@torch.no_grad()
def class_map(bits: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
    """The class at every second cell, (B, h / 2, w / 2) int64; -1 where no object is. The smallest object owns a cell."""
    batch, objects, height, bytes_ = bits.shape
    area = torch.where(valid, count_bits(bits), torch.inf)
    rank = area.argsort(dim=1, stable=True).argsort(dim=1)  # 0 is the smallest
    first = bits.new_full((batch, height // 2, bytes_ * 4), objects, dtype=torch.int64)
    step = max(1, mask_blocks.cells_at_once(bits.device) // (batch * height * bytes_ * 8))
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


def _kernels() -> ModuleType | None:
    return compiled("pellucid.losses.mask_kernels", "mask losses")


def _backend(proto: Tensor) -> ModuleType:
    """What computes the sums: kernels on a GPU in float32, else blocks."""
    kernels = _kernels() if proto.is_cuda and proto.dtype == torch.float32 else None
    return mask_blocks if kernels is None else kernels


def _cells_first(proto: Tensor) -> Tensor:
    """(B, K, h, w) -> (B, h, w, K), contiguous; a view where the memory is channels-last."""
    return proto.permute(0, 2, 3, 1).contiguous()


def _areas(boxes: Tensor) -> Tensor:
    """Areas (B, p) in cells; 1 for a box without."""
    w, h = (boxes[..., 2:] - boxes[..., :2]).unbind(-1)
    return torch.where(w * h > 0, w * h, 1.0)

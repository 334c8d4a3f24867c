"""The sums of `masks` in blocks of pairs, on any device and in any precision: memory does not grow with the number of pairs.

Coefficients (B, P, K) and prototypes (B, H, W, K); bits (B, N, H, W / 8), one row an object; boxes (B, P, 4) in cells; owner (B, P), the
object of each pair. A cell (x, y) lies in a box where x1 <= x + offset < x2, and so for y. Nothing of the size pairs x cells outlives
its block.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..geometry.masks import unpack_bits

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # coefficients, proto, bits, owner, boxes
BLOCK = {"cpu": 1 << 21, "cuda": 1 << 25}  # cells that are computed at once


def bce_sums(inputs: Inputs, offset: float) -> Tensor:
    """The sum of BCE over the cells of each box, (B, P)."""
    coefficients, proto, bits, owner, boxes = inputs
    flat, sums = proto.flatten(1, 2).mT, coefficients.new_zeros(boxes.shape[:2])
    for part in _blocks(inputs):
        logits = coefficients[:, part] @ flat  # (B, p, H W)
        cost = softplus(logits) - torch.where(_targets(bits, owner[:, part]), logits, 0)
        sums[:, part] = (cost * _crop(boxes[:, part], proto, offset)).sum(-1)
    return sums


def bce_gradients(inputs: Inputs, offset: float, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the sums, each times its `scale` (B, P), by coefficients (B, P, K) and prototypes (B, H, W, K)."""
    coefficients, proto, bits, owner, boxes = inputs
    flat = proto.flatten(1, 2)
    of_coefficients, of_proto = torch.empty_like(coefficients), torch.zeros_like(flat)
    for part in _blocks(inputs):
        logits = coefficients[:, part] @ flat.mT
        target = _targets(bits, owner[:, part]).to(logits.dtype)
        slope = (logits.sigmoid_() - target) * (_crop(boxes[:, part], proto, offset) * scale[:, part, None])
        of_coefficients[:, part] = slope @ flat
        of_proto.baddbmm_(slope.mT, coefficients[:, part])
    return of_coefficients, of_proto.view_as(proto)


def overlap_counts(inputs: Inputs, offset: float) -> tuple[Tensor, Tensor]:
    """Cells of each box with a positive logit, and those of them in the owner's mask, (B, P) float32."""
    coefficients, proto, bits, owner, boxes = inputs
    flat = proto.flatten(1, 2).mT
    own, both = (torch.zeros_like(boxes[..., 0]) for _ in range(2))
    for part in _blocks(inputs):
        hard = (coefficients[:, part] @ flat > 0) & _crop(boxes[:, part], proto, offset)
        own[:, part] = hard.sum(-1).float()
        both[:, part] = (hard & _targets(bits, owner[:, part])).sum(-1).float()
    return own, both


def cells_at_once(device: torch.device) -> int:
    return BLOCK.get(device.type, BLOCK["cpu"])


def _blocks(inputs: Inputs) -> Iterator[slice]:
    proto, pairs = inputs[1], inputs[4].shape[1]
    step = max(1, cells_at_once(proto.device) // (proto.shape[0] * proto.shape[1] * proto.shape[2]))
    return (slice(start, min(start + step, pairs)) for start in range(0, pairs, step))


def _targets(bits: Tensor, owner: Tensor) -> Tensor:
    """The masks of objects `owner` (B, p) as (B, p, H W) bool."""
    rows = torch.arange(len(bits), device=bits.device)[:, None]
    return unpack_bits(bits[rows, owner]).flatten(2)


def _crop(boxes: Tensor, proto: Tensor, offset: float) -> Tensor:
    """Which cells boxes (B, p, 4) hold: (B, p, H W) bool."""
    x1, y1, x2, y2 = boxes[..., None].unbind(-2)  # (B, p, 1) each
    y, x = (torch.arange(side, device=boxes.device) + offset for side in proto.shape[1:3])
    rows, columns = (y >= y1) & (y < y2), (x >= x1) & (x < x2)
    return (rows[..., :, None] & columns[..., None, :]).flatten(2)

"""The sums of `mask_blocks` as GPU kernels that look at the cells of each box alone: a crowd of small objects costs little.

Inputs are contiguous, floating ones float32, K a power of two. Every sum is taken in a fixed order, so that equal inputs give equal
outputs. Imported only where there is a GPU.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from ..numerics.kernels import device_of
from .mask_blocks import Inputs

CELLS = 64  # looked at together
TILE = 8  # side of the square of cells whose prototype gradient one program sums


@triton.jit
def _window(boxes, pair, offset, height, width):
    """The cells that a box may hold, cut at the grid: left, top, columns, rows; none for what is no box. And the box itself."""
    x1, y1 = tl.load(boxes + 4 * pair), tl.load(boxes + 4 * pair + 1)
    x2, y2 = tl.load(boxes + 4 * pair + 2), tl.load(boxes + 4 * pair + 3)
    sound = (x1 == x1) & (y1 == y1) & (x2 == x2) & (y2 == y2)
    x1, y1 = tl.where(sound, x1, 0.0), tl.where(sound, y1, 0.0)
    x2, y2 = tl.where(sound, x2, 0.0), tl.where(sound, y2, 0.0)
    left = tl.floor(tl.minimum(tl.maximum(x1 - offset, 0.0), width + 0.0)).to(tl.int32)
    top = tl.floor(tl.minimum(tl.maximum(y1 - offset, 0.0), height + 0.0)).to(tl.int32)
    right = tl.ceil(tl.minimum(tl.maximum(x2 - offset, 0.0), width + 0.0)).to(tl.int32)
    bottom = tl.ceil(tl.minimum(tl.maximum(y2 - offset, 0.0), height + 0.0)).to(tl.int32)
    return left, top, tl.maximum(right - left, 0), tl.maximum(bottom - top, 0), x1, y1, x2, y2


@triton.jit
def _target(bits, mask, x, y, height, width, inside):
    """Whether cells lie in mask number `mask`."""
    byte = tl.load(bits + (mask * height + y) * (width // 8) + x // 8, mask=inside, other=0).to(tl.int32)
    return (byte >> (7 - x % 8)) & 1


@triton.jit
def _look(inputs, results, numbers, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """One pair: MODE 0, the sum of BCE into `first`; 1, its gradient by the coefficients, times `second`, into `first`;
    2, the number of filled cells into `first`, and of those in the object's mask into `second`."""
    coefficients, proto, bits, owner, boxes = inputs
    first, second = results
    offset, pairs, objects, height, width = numbers
    pair = tl.program_id(0).to(tl.int64)
    image = pair // pairs
    channel = tl.arange(0, CHANNELS)
    left, top, columns, rows, x1, y1, x2, y2 = _window(boxes, pair, offset, height, width)
    weights = tl.load(coefficients + pair * CHANNELS + channel)
    mask = image * objects + tl.load(owner + pair)
    total = tl.zeros((BLOCK,), tl.float32)
    other = tl.zeros((BLOCK,), tl.float32)
    slopes = tl.zeros((CHANNELS,), tl.float32)
    for start in range(0, columns * rows, BLOCK):
        place = start + tl.arange(0, BLOCK)
        x, y = left + place % tl.maximum(columns, 1), top + place // tl.maximum(columns, 1)
        inside = (place < columns * rows) & (x + offset >= x1) & (x + offset < x2) & (y + offset >= y1) & (y + offset < y2)
        cell = (image * height + y) * width + x
        values = tl.load(proto + cell[:, None] * CHANNELS + channel[None, :], mask=inside[:, None], other=0.0)
        logits = tl.sum(values * weights[None, :], 1)
        target = _target(bits, mask, x, y, height, width, inside)
        if MODE == 0:
            cost = tl.maximum(logits, 0.0) + tl.log(1 + tl.exp(-tl.abs(logits))) - target * logits
            total += tl.where(inside, cost, 0.0)
        elif MODE == 1:
            slope = tl.where(inside, 1 / (1 + tl.exp(-logits)) - target, 0.0)
            slopes += tl.sum(slope[:, None] * values, 0)
        else:
            filled = tl.where(inside & (logits > 0), 1.0, 0.0)
            total += filled
            other += filled * target
    if MODE == 1:
        tl.store(first + pair * CHANNELS + channel, slopes * tl.load(second + pair))
    else:
        tl.store(first + pair, tl.sum(total, 0))
        if MODE == 2:
            tl.store(second + pair, tl.sum(other, 0))


@triton.jit
def _teach(inputs, scale, result, numbers, CHANNELS: tl.constexpr, SIDE: tl.constexpr, GROUP: tl.constexpr):
    """The gradient by the prototypes of one square of cells: the pairs whose box meets it, one after the other."""
    coefficients, proto, bits, owner, boxes = inputs
    offset, pairs, objects, height, width = numbers
    across = tl.cdiv(width, SIDE)
    image, square = tl.program_id(1).to(tl.int64), tl.program_id(0)
    place, channel = tl.arange(0, SIDE * SIDE), tl.arange(0, CHANNELS)
    left, top = square % across * SIDE, square // across * SIDE
    x, y = left + place % SIDE, top + place // SIDE
    inside = (x < width) & (y < height)
    cell = ((image * height + y) * width + x)[:, None] * CHANNELS + channel[None, :]
    values = tl.load(proto + cell, mask=inside[:, None], other=0.0)
    total = tl.zeros((SIDE * SIDE, CHANNELS), tl.float32)
    for group in range(0, pairs, GROUP):
        number = group + tl.arange(0, GROUP)
        known, all_pairs = number < pairs, image * pairs + number
        far = tl.load(boxes + 4 * all_pairs, mask=known, other=0.0) >= left + SIDE + offset
        far |= tl.load(boxes + 4 * all_pairs + 1, mask=known, other=0.0) >= top + SIDE + offset
        far |= tl.load(boxes + 4 * all_pairs + 2, mask=known, other=0.0) <= left + offset
        far |= tl.load(boxes + 4 * all_pairs + 3, mask=known, other=0.0) <= top + offset
        near = known & ~far & (tl.load(scale + all_pairs, mask=known, other=0.0) != 0)
        some = tl.where(tl.sum(near.to(tl.int32), 0) > 0, GROUP, 0)
        for member in range(group, tl.minimum(group + some, pairs)):
            pair = image * pairs + member
            x1, y1 = tl.load(boxes + 4 * pair), tl.load(boxes + 4 * pair + 1)
            x2, y2 = tl.load(boxes + 4 * pair + 2), tl.load(boxes + 4 * pair + 3)
            gain = tl.load(scale + pair)
            meets = (x1 < left + SIDE + offset) & (x2 > left + offset) & (y1 < top + SIDE + offset) & (y2 > top + offset)
            if meets & (gain != 0):
                weights = tl.load(coefficients + pair * CHANNELS + channel)
                held = inside & (x + offset >= x1) & (x + offset < x2) & (y + offset >= y1) & (y + offset < y2)
                logits = tl.sum(values * weights[None, :], 1)
                target = _target(bits, image * objects + tl.load(owner + pair), x, y, height, width, held)
                slope = tl.where(held, (1 / (1 + tl.exp(-logits)) - target) * gain, 0.0)
                total += slope[:, None] * weights[None, :]
    tl.store(result + cell, total, mask=inside[:, None])


def bce_sums(inputs: Inputs, offset: float) -> Tensor:
    """The sum of BCE over the cells of each box, (B, P)."""
    sums = inputs[4].new_empty(inputs[4].shape[:2])
    _run(inputs, (sums, sums), offset, 0)
    return sums


def bce_gradients(inputs: Inputs, offset: float, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the sums, each times its `scale` (B, P), by coefficients (B, P, K) and prototypes (B, H, W, K)."""
    of_coefficients, of_proto = torch.empty_like(inputs[0]), torch.empty_like(inputs[1])
    _run(inputs, (of_coefficients, scale), offset, 1)
    batch, height, width, channels = of_proto.shape
    grid = (triton.cdiv(height, TILE) * triton.cdiv(width, TILE), batch)
    with device_of(of_proto):
        _teach[grid](inputs, scale, of_proto, _numbers(inputs, offset), CHANNELS=channels, SIDE=TILE, GROUP=CELLS)
    return of_coefficients, of_proto


def overlap_counts(inputs: Inputs, offset: float) -> tuple[Tensor, Tensor]:
    """Cells of each box with a positive logit, and those of them in the owner's mask, (B, P) float32."""
    own, both = (inputs[4].new_empty(inputs[4].shape[:2]) for _ in range(2))
    _run(inputs, (own, both), offset, 2)
    return own, both


def probe() -> None:
    """Run once on a single cell, so that what cannot be compiled is known before training begins."""
    one = torch.zeros(1, 1, 4, device="cuda")
    proto, bits = torch.zeros(1, 8, 8, 32, device="cuda"), torch.zeros(1, 1, 8, 1, dtype=torch.uint8, device="cuda")
    overlap_counts((torch.zeros(1, 1, 32, device="cuda"), proto, bits, torch.zeros(1, 1, dtype=torch.int64, device="cuda"), one), 0.0)


def _run(inputs: Inputs, results: tuple[Tensor, Tensor], offset: float, mode: int) -> None:
    count = inputs[4].shape[0] * inputs[4].shape[1]
    if count:
        with device_of(inputs[1]):
            _look[(count,)](inputs, results, _numbers(inputs, offset), CHANNELS=inputs[1].shape[3], BLOCK=CELLS, MODE=mode)


def _numbers(inputs: Inputs, offset: float) -> tuple[float, int, int, int, int]:
    """Offset, pairs, objects, height, width."""
    _, proto, bits, _, boxes = inputs
    return offset, boxes.shape[1], bits.shape[1], proto.shape[1], proto.shape[2]

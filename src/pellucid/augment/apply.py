"""The pixels of a batch, on the device where they lie: one bilinear resample an image, mixup, colour. Nothing waits for the host."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from ..geometry.affine import sampling_grid
from ..types import Batch, Packed
from .color import shift_hsv
from .paste import FILL

_CHUNK_BYTES = {"cpu": 2**23, "cuda": 2**29}  # float sources at work at once: near the cache, or bounded memory


@torch.no_grad()
def apply(packed: Packed) -> Batch:
    """Turn what a worker sent into images (B, 3, S, S) uint8; on CPU and GPU alike to one grey level."""
    images = _render(packed) if packed.warped else _stack(packed)
    return Batch(images, packed.targets, packed.metas)


def _stack(packed: Packed) -> Tensor:
    canvases = packed.buffer.view(len(packed), packed.size, packed.size, 3)
    return canvases.permute(0, 3, 1, 2).contiguous()


def _render(packed: Packed) -> Tensor:
    count, size = len(packed), packed.size
    images = packed.buffer.new_empty(count, 3, size, size)
    sources = _sources(packed)
    step = _chunk(packed)
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        pixels = _warp(sources[part], packed.matrices[part], size)
        _blend(pixels, part, packed, sources)
        torch.round(shift_hsv(pixels, packed.color[part]), out=pixels)
        images[part] = pixels.clamp_(0, 255)
    return images


def _sources(packed: Packed) -> list[Tensor]:
    """Views (3, h, w) uint8 of the layers in the buffer."""
    pieces = packed.buffer.split([3 * height * width for height, width in packed.sizes])
    return [piece.view(height, width, 3).permute(2, 0, 1) for piece, (height, width) in zip(pieces, packed.sizes, strict=True)]


def _chunk(packed: Packed) -> int:
    """How many images to warp at once."""
    largest = 12 * max(height for height, _ in packed.sizes) * max(width for _, width in packed.sizes)
    return max(1, _CHUNK_BYTES.get(packed.buffer.device.type, 2**28) // largest)


def _warp(sources: Sequence[Tensor], matrices: Tensor, size: int) -> Tensor:
    """Sources of many sizes, padded to one, warped to (n, 3, size, size) float."""
    height, width = (max(source.shape[axis] for source in sources) for axis in (1, 2))
    padded = matrices.new_zeros(len(sources), 3, height, width)  # grey 114 counts as 0
    for place, source in zip(padded, sources, strict=True):
        torch.sub(source, float(FILL), out=place[:, : source.shape[1], : source.shape[2]])
    grid = sampling_grid(matrices, height, width, size)
    return grid_sample(padded, grid, mode="bilinear", padding_mode="zeros", align_corners=False).add_(FILL)


def _blend(pixels: Tensor, part: slice, packed: Packed, sources: Sequence[Tensor]) -> None:
    """Mix the second layers into the images of this part, in place."""
    for j, image in enumerate(packed.mixed):
        if part.start <= image < part.stop:
            at = len(packed) + j
            second = _warp(sources[at : at + 1], packed.matrices[at : at + 1], packed.size)
            first = pixels[image - part.start]
            first.sub_(second[0]).mul_(packed.share[j]).add_(second[0])

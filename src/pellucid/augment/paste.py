"""What a worker does for one view: paste the sources at whole pixels, cut to what the output sees, move the objects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..geometry.affine import compose, scaling, translation
from ..geometry.polygons import Polygons
from ..types import Instances, Layer
from .copy_paste import Cutting, hide, lay
from .plan import View

FILL = 114
Rect = tuple[int, int, int, int]  # left, top, right, bottom
Room = Callable[[tuple[int, int, int]], np.ndarray]  # shape -> pixels (h, w, 3) uint8 to be written
MIN_SIDE = 2.0  # px; an object with a shorter side is not taught
MIN_VISIBLE = 0.1  # of its area
MAX_ASPECT = 100.0


def blank(shape: tuple[int, int, int]) -> np.ndarray:
    """Memory of its own."""
    return np.empty(shape, np.uint8)


def layer(view: View, images: Sequence[np.ndarray], cutting: Cutting | None = None, room: Room = blank) -> Layer:
    """The canvas pixels that the output samples, of sources (h, w, 3) uint8, with their matrix to the output; they go into `room`.

    A view that shrinks by more than two is averaged over whole blocks first: a bilinear sample reaches no further than two pixels.
    The objects of a `cutting` lie above the sources.
    """
    offsets = view.offsets([image.shape[:2] for image in images])
    block = _block(view.matrix)
    above = [] if cutting is None else [cutting]
    covered = [*images, *(cut.pixels for cut in above)], [*offsets, *((cut.left, cut.top) for cut in above)]
    left, top, right, bottom = _crop(view.visible(2 * block), *covered)
    canvas = (room if block == 1 else blank)((-(-(bottom - top) // block) * block, -(-(right - left) // block) * block, 3))
    pixels = _paste(images, [(x - left, y - top) for x, y in offsets], bottom - top, right - left, canvas)
    for cut in above:
        lay(pixels, cut, left, top)
    if block > 1:
        small = Image.fromarray(pixels).reduce(block)
        pixels = room((small.height, small.width, 3))
        pixels[:] = small
    return Layer(torch.from_numpy(pixels), compose(view.matrix, translation(left, top), scaling(block, block)))


def move(
    view: View,
    objects: Sequence[Instances],
    originals: Sequence[tuple[int, int]],
    sizes: Sequence[tuple[int, int]],
    cutting: Cutting | None = None,
) -> Instances:
    """Objects of every source, from original (h, w) pixels, to the output, less those of which too little is seen to be taught.

    `sizes` are the (h, w) of the resized sources. The objects of a `cutting` come last, and hide what lies beneath.
    """
    placed = []
    for part, (height, width), (h, w), (x, y) in zip(objects, originals, sizes, view.offsets(sizes), strict=True):
        placed.append(part.warp(compose(translation(x, y), scaling(w / width, h / height))))
    whole = Instances.cat(placed)
    cut = whole.clip(view.canvas, view.canvas)
    on_canvas = whole.visible(view.canvas, view.canvas)  # in two steps: a turned box grows
    if cutting is not None:
        cut, left = hide(cut, cutting)
        cut = Instances.cat([cut, cutting.objects.clip(view.canvas, view.canvas)])
        on_canvas = torch.cat((on_canvas * left, cutting.objects.visible(view.canvas, view.canvas)))
    moved = cut.warp(view.matrix)
    seen = moved.clip(view.size, view.size)
    of_cut = _in_output(cut, moved, view) / cut.visible(view.canvas, view.canvas).clamp(min=1e-9)  # shapes that stay whole: of all
    share = on_canvas * of_cut.clamp(max=1)
    seen = seen.tighten(view.size, view.size)
    kept = _large(seen) & (share >= MIN_VISIBLE)
    return seen[kept if seen.ignore is None else kept | (seen.ignore & (share > 0))]


def _in_output(cut: Instances, moved: Instances, view: View) -> Tensor:
    """Share of each object in the output, (n,); a turned box counts by its own four corners, not by the box around them."""
    straight = bool((view.matrix[0, 1] == 0) & (view.matrix[1, 0] == 0))
    if straight or any(shape.extent for shape in cut.shapes.values()):
        return moved.visible(view.size, view.size)
    x1, y1, x2, y2 = cut.shapes["boxes"].bounds().unbind(-1)
    corners = torch.stack((x1, y1, x2, y1, x2, y2, x1, y2), -1).reshape(-1, 2)
    outlines = Polygons(corners, torch.arange(0, len(corners) + 1, 4), torch.arange(len(x1) + 1))
    return outlines.warp(view.matrix).visible(view.size, view.size)


def _large(objects: Instances) -> Tensor:
    """Which objects have sides that can be taught, (n,) bool."""
    bounds = objects.shapes["boxes"].bounds()
    short, long = (bounds[:, 2:] - bounds[:, :2]).sort(-1).values.unbind(-1)
    return (short > MIN_SIDE) & (long < MAX_ASPECT * short)


def _crop(seen: Rect, images: Sequence[np.ndarray], offsets: Sequence[tuple[int, int]]) -> Rect:
    """The part of the canvas that is both seen and covered by a source; one pixel if there is none."""
    left, top, right, bottom = seen
    left = max(left, min(x for x, _ in offsets))
    top = max(top, min(y for _, y in offsets))
    right = min(right, max(x + image.shape[1] for (x, _), image in zip(offsets, images, strict=True)))
    bottom = min(bottom, max(y + image.shape[0] for (_, y), image in zip(offsets, images, strict=True)))
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _block(matrix: Tensor) -> int:
    """Side of the blocks to average, so that the rest of the matrix shrinks by two at the most."""
    gain = math.sqrt(abs(float(matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0])))
    return max(1, math.ceil(0.5 / gain - 1e-6))


def _paste(images: Sequence[np.ndarray], offsets: Sequence[tuple[int, int]], height: int, width: int, canvas: np.ndarray) -> np.ndarray:
    """`canvas`, with the sources at their (left, top), cut at (height, width), and grey where there is none."""
    places = []
    for image, (x, y) in zip(images, offsets, strict=True):
        left, top = max(x, 0), max(y, 0)
        right, bottom = min(x + image.shape[1], width), min(y + image.shape[0], height)
        if right > left and bottom > top:
            canvas[top:bottom, left:right] = image[top - y : bottom - y, left - x : right - x]
            places.append((left, top, right, bottom))
    _fill_gaps(canvas, places)
    return canvas


def _fill_gaps(canvas: np.ndarray, places: Sequence[Rect]) -> None:
    """Grey outside of `places`: the edges of all cut the canvas into cells that are wholly inside or outside."""
    across = sorted({0, canvas.shape[1], *(edge for left, _, right, _ in places for edge in (left, right))})
    down = sorted({0, canvas.shape[0], *(edge for _, top, _, bottom in places for edge in (top, bottom))})
    for y1, y2 in pairwise(down):
        for x1, x2 in pairwise(across):
            if not any(left <= x1 and x2 <= right and top <= y1 and y2 <= bottom for left, top, right, bottom in places):
                canvas[y1:y2, x1:x2] = FILL

"""Masks on a picture, tinted and with a line along the inner side of their edge, both without stairs; worked on piece by piece.

The edge is where the mask, blurred by one pixel, is half there: how far a pixel is from it is read off the blurred value. A pixel of the
mask that lies where it is too thin to have such an edge is all line.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import ceil
from statistics import NormalDist

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

Color = tuple[int, int, int]
Box = tuple[int, int, int, int]
TINT = 90  # of 255: how much of a mask's colour lies over the picture
PIECE = 128  # pixels along a piece; those that lie deep inside the mask are tinted as one, those outside are passed over
SOFT = 3  # pixels around a mask that its blurred edge reaches into
SHARP = 2  # pixels: the width of a line up to which its inner side, too, is seen in the blur of one pixel
DEPTH = 0.828  # of half the side of a square: so deep inside, its share in the mask is the same at straight and at slanting edges
FINE, CORNER = 0.4, 0.478  # blurred values of what is all line, and of the corner of a rectangle


def shade(pen: ImageDraw.ImageDraw, inside: np.ndarray, left: int, top: int, color: Color, line: int) -> None:
    """Tint the pixels of a mask (h, w) bool whose first pixel is (left, top), and draw its line, `line` pixels wide."""
    margin = reach(line)
    columns, rows = (
        range(max(start - SOFT, 0), min(start + side + SOFT, limit), PIECE)
        for start, side, limit in ((left, inside.shape[1], pen.im.size[0]), (top, inside.shape[0], pen.im.size[1]))
    )
    for y in rows:
        height, deep = min(PIECE, rows.stop - y), columns.start  # from `deep` to x all is deep inside
        for x in columns:
            width = min(PIECE, columns.stop - x)
            part = _cut(inside, y - margin - top, x - margin - left, height + 2 * margin, width + 2 * margin)
            if part is not None and part.all():
                continue
            _lay(pen, (deep, y, x, y + height), color, None)
            deep = x + width
            if part is not None:
                _lay(pen, (x, y, deep, y + height), color, _cover(part, margin, line))
        _lay(pen, (deep, y, columns.stop, y + height), color, None)


def _lay(pen: ImageDraw.ImageDraw, box: Box, color: Color, cover: Image.Image | None) -> None:
    """Lay a colour over what the box (xyxy) holds: of 255 as `cover` says, as a tint without."""
    size = box[2] - box[0], box[3] - box[1]
    if size[0] > 0:
        mask = Image.new("L", size, TINT) if cover is None else cover
        pen.im.paste(Image.new("RGB", size, color).im, box, mask.im)


def reach(line: int) -> int:
    """How many pixels around a place have a say in what is drawn there, for lines of `line` pixels."""
    return SOFT if line <= SHARP else max(SOFT, ceil(line / DEPTH))


def _cut(inside: np.ndarray, y: int, x: int, height: int, width: int) -> np.ndarray | None:
    """The part (height, width) of a mask from (y, x) on, empty beyond the mask; None where all of it is empty."""
    seen = inside[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)]
    if not seen.any():
        return None
    if seen.shape == (height, width):
        return seen
    part = np.zeros((height, width), np.bool_)
    part[max(-y, 0) : max(-y, 0) + seen.shape[0], max(-x, 0) : max(-x, 0) + seen.shape[1]] = seen
    return part


def _cover(part: np.ndarray, margin: int, line: int) -> Image.Image:
    """How much of the colour, of 255, lies over the pixels of a mask (h, w) bool less its margin: the tint and over it the line."""
    whole = Image.fromarray(part.astype(np.uint8) * np.uint8(255))
    near = whole if margin == SOFT else _less(whole, margin - SOFT)
    soft = _less(near.filter(ImageFilter.GaussianBlur(1)), SOFT)
    inner = soft if line <= SHARP else _less(whole.filter(ImageFilter.BoxBlur(line / DEPTH - 0.5)), margin)
    edge = ImageChops.darker(soft.point(_outer_side()), inner.point(_inner_side(line)))
    thin = ImageChops.darker(soft.point(_thin_parts()), _less(whole, margin))
    return ImageChops.screen(soft.point(_tints()), ImageChops.lighter(edge, thin))


def _less(image: Image.Image, margin: int) -> Image.Image:
    return image.crop((margin, margin, image.width - margin, image.height - margin))


@cache
def _far() -> list[float]:
    """Pixels into a mask, by the value of 0 to 255 that a Gaussian blur of one pixel leaves there."""
    return [NormalDist().inv_cdf(min(max(value / 255, 1e-6), 1 - 1e-6)) for value in range(256)]


def _share(value: float) -> float:
    return min(max(value, 0), 1)


def _table(values: Iterable[float]) -> list[int]:
    return [round(value) for value in values]


@cache
def _tints() -> list[int]:
    return _table(TINT * _share(far + 0.5) for far in _far())


@cache
def _outer_side() -> list[int]:
    return _table(255 * _share(1.2 * (far + 0.5) - 0.1) for far in _far())


@cache
def _inner_side(line: int) -> list[int]:
    half = line / DEPTH
    far = _far() if line <= SHARP else [half * (2 * value / 255 - 1) for value in range(256)]
    return _table(255 * _share(1.2 * (line + 0.5 - one) - 0.1) for one in far)


@cache
def _thin_parts() -> list[int]:
    """All line up to `FINE`, and from there less and less, down to what the edge itself gives at a corner."""
    corner = _outer_side()[round(255 * CORNER)]
    slopes = [_share((CORNER - value / 255) / (CORNER - FINE)) for value in range(256)]
    return _table(corner + (255 - corner) * slope if slope > 0 else 0 for slope in slopes)

"""Every draw of one training picture, from (seed, epoch, row) alone: which sources, where they lie, how they move, which colour.

A view is an S x S window, moved by an affine map, onto a canvas: of four sources that meet at a point of a 2S x 2S canvas (mosaic),
or of one source centred on an S x S canvas. Sources come with their longest side resized to S; around them all is grey 114.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..geometry.affine import compose, invert, rotation, scaling, shear, transform_points, translation
from .copy_paste import Guest
from .presets import AugmentConfig

_SEEDS = 2**64


@dataclass(frozen=True)
class View:
    """Sources on a canvas and the matrix that takes the canvas to the output."""

    rows: tuple[int, ...]  # one source, or four: top left, top right, bottom left, bottom right
    meet: tuple[int, int]  # (x, y) on the canvas where the four meet
    canvas: int  # side of the canvas, pixels
    matrix: Tensor  # (3, 3) float64, canvas -> output
    size: int  # S
    guest: Guest | None = None  # whose objects are pasted over it

    def offsets(self, sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """(left, top) on the canvas of every source of (height, width) pixels; parts may lie outside."""
        if len(self.rows) == 1:
            ((height, width),) = sizes
            return [((self.size - width) // 2, (self.size - height) // 2)]
        x, y = self.meet
        return [(x - w * (i in (0, 2)), y - h * (i in (0, 1))) for i, (h, w) in enumerate(sizes)]

    def visible(self, margin: int) -> tuple[int, int, int, int]:
        """Canvas pixels (left, top, right, bottom) under the output and `margin` more, cut at the canvas; may be empty."""
        s = float(self.size)
        corners = torch.tensor([[0, 0], [s, 0], [0, s], [s, s]], dtype=torch.float64)
        seen = transform_points(invert(self.matrix), corners)
        low = (seen.amin(0).floor() - margin).clamp(0, self.canvas)
        high = (seen.amax(0).ceil() + margin).clamp(0, self.canvas)
        left, top, right, bottom = (int(value) for value in torch.cat((low, high)).tolist())
        return left, top, right, bottom


@dataclass(frozen=True)
class Plan:
    """One training picture before any pixel is read."""

    views: tuple[View, ...]  # one; two with mixup
    share: float  # weight of the first view
    color: Tensor  # (3,) float32: hue shift in turns, saturation gain, value gain


def plan(length: int, config: AugmentConfig, size: int, seed: int, epoch: int, row: int, mosaic_on: bool = True) -> Plan:
    """The plan of `row` among `length` pictures at S = `size`; partners come from all of them, without mosaic_on there are none.

    All numbers are drawn whether they are used or not, so that settings can be compared under equal draws.
    """
    draw, guests = _generator(seed, epoch, row), _generator(seed, epoch, row, stream=2)
    chance_of_guests = config.copy_paste if mosaic_on else 0.0
    first = replace(_view(draw, length, config, size, row, mosaic_on), guest=_guest(guests, length, chance_of_guests))
    gains = draw.uniform(-1, 1, 3) * (config.hsv_h, config.hsv_s, config.hsv_v)
    color = torch.from_numpy(np.array([0.0, 1.0, 1.0]) + gains).float()
    chance, partner, share = draw.random(), int(draw.integers(length)), float(draw.beta(32, 32))
    if not (mosaic_on and chance < config.mixup):
        return Plan((first,), 1.0, color)
    second = replace(_view(draw, length, config, size, partner, mosaic_on), guest=_guest(guests, length, chance_of_guests))
    return Plan((first, second), share, color)


def order(length: int, seed: int, epoch: int) -> np.ndarray:
    """The rows 0 .. length - 1 in the order of this epoch."""
    return _generator(seed, epoch, 0, stream=1).permutation(length)


def _generator(seed: int, epoch: int, row: int, stream: int = 0) -> np.random.Generator:
    key = np.array([seed % _SEEDS, epoch], dtype=np.uint64)
    counter = np.array([0, row, stream, 0], dtype=np.uint64)  # the first word counts the draws
    return np.random.Generator(np.random.Philox(counter=counter, key=key))


def _guest(draw: np.random.Generator, length: int, probability: float) -> Guest | None:
    chance, x, y, mirror = draw.random(4).tolist()
    row, pick = int(draw.integers(length)), int(draw.integers(1 << 62))
    return Guest(row, (x, y), mirror < 0.5, pick) if chance < probability else None


def _view(draw: np.random.Generator, length: int, config: AugmentConfig, size: int, row: int, mosaic_on: bool) -> View:
    chance = draw.random()
    partners = tuple(int(other) for other in draw.integers(length, size=3))
    x, y = (int(value) for value in draw.integers(size // 2, size * 3 // 2, size=2, endpoint=True))
    move = _affine(draw, config, size)
    if not (mosaic_on and chance < config.mosaic):
        return View((row,), (0, 0), size, move, size)
    window = translation(-size / 2, -size / 2)  # the window lies in the middle of the canvas
    return View((row, *partners), (x, y), 2 * size, compose(move, window), size)


def _affine(draw: np.random.Generator, config: AugmentConfig, size: int) -> Tensor:
    """Window -> output: scale, turn, shear about the centre, then shift, then flip; (3, 3) float64."""
    grow, turn, lean_x, lean_y, right, down = draw.uniform(-1, 1, 6)
    flips = draw.random(2) < (config.fliplr, config.flipud)
    gain = 1 + grow * config.scale
    lean = math.radians(config.shear)
    half = size / 2
    mirror_x, mirror_y = 1 - 2 * int(flips[0]), 1 - 2 * int(flips[1])
    return compose(
        translation(half, half),
        scaling(mirror_x, mirror_y),
        translation(right * config.translate * size, down * config.translate * size),
        shear(lean_x * lean, lean_y * lean),
        rotation(turn * math.radians(config.degrees)),
        scaling(gain, gain),
        translation(-half, -half),
    )

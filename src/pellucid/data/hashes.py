"""Pictures that show the same: a difference hash on 9 x 8 greys finds candidates, a thumbnail of 32 x 32 confirms them.

A copy that was resized, compressed again or made a little brighter is found, and so are frames of a film in which next to nothing moves;
a crop or a mirror image is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from ..errors import DataError
from .images import FORMATS, read_image, upright

NEAR = 3  # bits of 64 in which the hashes of copies may differ
BANDS = NEAR + 1  # of 16 bits: two hashes so near agree in one of them
THUMB = 32
CONTRAST = 0.25  # share of a thumbnail's standard deviation by which another may differ from it in the mean
FLOOR = 1.5  # the same in grey levels, for pictures that show nearly nothing
_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)
_LOOK = 4096  # candidates of one band that are compared with one another; larger buckets hold the same hash


def _grey(path: Path) -> Image.Image:
    """A grey picture, upright; a JPEG is decoded no larger than is needed."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.mode in ("L", "RGB", "YCbCr"):
                image.draft("L", (4 * THUMB, 4 * THUMB))
                return upright(image).convert("L")
    except Exception:  # whatever a decoder says, the careful reader says in a sentence
        pass
    return Image.fromarray(read_image(path)).convert("L")


def dhash(grey: Image.Image) -> int:
    """64 bits: whether each of 8 x 8 cells of a grey picture is brighter than the cell to its left."""
    small = np.asarray(grey.resize((9, 8), Image.Resampling.BOX)).astype(np.int16)
    bits = (small[:, 1:] > small[:, :-1]).reshape(-1)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def same_groups(hashes: np.ndarray, greys: np.ndarray) -> list[list[int]]:
    """Groups of two and more pictures that show the same, by their positions, rising."""
    parent = list(range(len(hashes)))
    for i, j in _pairs(hashes, greys):
        a, b = _root(parent, i), _root(parent, j)
        parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for i in range(len(parent)):
        groups.setdefault(_root(parent, i), []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def _ones(codes: np.ndarray) -> np.ndarray:
    """How many bits of each code (n,) uint64 are set."""
    return _BITS[np.ascontiguousarray(codes).view(np.uint8).reshape(-1, 8)].sum(1)


def _root(parent: list[int], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def _pairs(hashes: np.ndarray, greys: np.ndarray) -> Iterable[tuple[int, int]]:
    """Pairs whose hashes are near and whose thumbnails agree, found by the bands of bits that they share."""
    bits = hashes.astype(np.uint64)
    for band in range(BANDS):
        key = (bits >> np.uint64(16 * band)) & np.uint64(0xFFFF)
        order = np.argsort(key, kind="stable")
        for bucket in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
            if len(bucket) > 1:
                yield from _within(np.sort(bucket), bits, greys)


def _within(bucket: np.ndarray, bits: np.ndarray, greys: np.ndarray) -> Iterable[tuple[int, int]]:
    """The pairs of one bucket; of very many, only neighbours in the order of their hashes are looked at."""
    flat = greys[bucket].reshape(len(bucket), -1).astype(np.int16)
    limits = np.maximum(FLOOR, CONTRAST * flat.std(1))
    order = np.argsort(bits[bucket], kind="stable")
    bucket, flat, limits = bucket[order], flat[order], limits[order]
    for k in range(len(bucket) - 1):
        later = slice(k + 1, k + 1 + _LOOK)
        near = np.flatnonzero(_ones(bits[bucket[later]] ^ bits[bucket[k]]) <= NEAR)
        if len(near):
            apart = np.abs(flat[later][near] - flat[k]).mean(1)
            alike = near[apart <= np.minimum(limits[k], limits[later][near])]
            yield from ((int(bucket[k]), int(bucket[k + 1 + i])) for i in alike)


def duplicates(paths: Sequence[Path]) -> list[list[int]]:
    """Groups of pictures that show the same, by position; a picture that cannot be decoded has no copy."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        made = list(pool.map(_thumbnail, paths))
    known = [i for i, part in enumerate(made) if part is not None]
    if not known:
        return []
    hashes, greys = zip(*(part for part in made if part is not None), strict=True)
    groups = same_groups(np.array(hashes, np.uint64), np.array(greys, np.uint8))
    return [[known[i] for i in group] for group in groups]


def _thumbnail(path: Path) -> tuple[int, np.ndarray] | None:
    """Hash and greys (32, 32) of a picture, None if it cannot be decoded."""
    try:
        grey = _grey(path)
    except DataError:
        return None
    return dhash(grey), np.asarray(grey.resize((THUMB, THUMB), Image.Resampling.BOX))

"""Seconds that large masks take: filling, drawing and writing. Prints JSON: `python bench/draw.py [side=8000] [masks=15]`.

One outline, and its run-length code, on a square picture of `side` pixels; as many predicted masks on a picture of 6000 x 4000.
"""

import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pellucid.draw import draw
from pellucid.geometry import Masks, Polygons, Rle
from pellucid.geometry.affine import scaling
from pellucid.results import Result
from pellucid.types import ImageMeta, Instances


def main(side: int = 8000, masks: int = 15) -> dict:
    turns = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    radii = 0.48 * side * (1 - 0.15 * np.cos(9 * turns) ** 2)
    ring = side / 2 + radii[:, None] * np.stack((np.cos(turns), np.sin(turns)), 1)
    polygons, square = Polygons.from_parts([[ring.reshape(-1)]]), np.full((side, side, 3), 128, np.uint8)
    result = {
        "machine": f"{platform.machine()}, torch {torch.__version__}",
        "fill_s": seconds(lambda: polygons.rasterise(side, side)),
        "draw_outline_s": seconds(lambda: draw(square, objects(polygons), ["a"], labels=False)),
    }
    codes = Rle.of_masks(polygons.rasterise(side, side))
    result["draw_code_s"] = seconds(lambda: draw(square, objects(codes), ["a"], labels=False))
    found, wide = predicted(masks), np.full((4000, 6000, 3), 128, np.uint8)
    result["crops_s"] = seconds(lambda: sum(int(crop[0, 0]) for crop, *_ in found.crops()))
    result["draw_masks_s"] = seconds(lambda: draw(wide, objects(found), ["a"], labels=False))
    drawn = Result(ImageMeta(0, 0, "wide.jpg", 4000, 6000), objects(found), ("a",), (0,), image=wide)
    with tempfile.TemporaryDirectory() as folder:
        result["save_masks_s"] = seconds(lambda: drawn.save(Path(folder)))
    return result


def predicted(count: int) -> Masks:
    """Masks with holes that fill nine tenths of 6000 x 4000 pixels each, sampled from cells of 37."""
    rough = torch.randn(1, 8, 12, 18, generator=torch.Generator().manual_seed(0))
    prototypes = torch.nn.functional.interpolate(rough, (107, 160), mode="bicubic")[0] + 0.4
    coefficients = torch.rand(count, 8, generator=torch.Generator().manual_seed(1))
    boxes = torch.tensor([[0.0, 0, 640, 427]]).repeat(count, 1)
    return Masks.of_prototypes(coefficients, prototypes, boxes, 4).warp(scaling(6000 / 640, 6000 / 640)).clip(4000, 6000)


def objects(shape) -> Instances:
    return Instances(torch.zeros(len(shape), dtype=torch.int64), {"shape": shape})


def seconds(work: Callable[[], object], times: int = 2) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return round(best, 3)


if __name__ == "__main__":
    print(json.dumps(main(**{key: int(value) for key, value in (word.split("=", 1) for word in sys.argv[1:])}), indent=1))

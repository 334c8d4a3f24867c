"""Objects of another picture, cut out along their outlines and laid over a view (arXiv 2012.07177): pixels and annotations alike.

What they hide is cut from the objects beneath, so that outlines, boxes and pixels tell the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..geometry import Polygons
from ..geometry.affine import compose, scaling, translation
from ..geometry.polygons import mask_rings
from ..geometry.rings import covered
from ..types import Instances

CHOSEN = 0.5  # probability with which each object of the other picture is pasted


@dataclass(frozen=True)
class Guest:
    """Which other picture lends its objects, and where its frame lies."""

    row: int
    place: tuple[float, float]  # of the frame in the window, from left (top) 0 to right (bottom) 1
    mirror: bool
    pick: int  # seed of the choice among its objects

    def offset(self, size: tuple[int, int], canvas: int, window: int) -> tuple[int, int]:
        """(left, top) on the canvas of a frame of (height, width) pixels, within the window in the canvas's middle."""
        height, width = size
        margin = (canvas - window) // 2
        return margin + round(self.place[0] * (window - width)), margin + round(self.place[1] * (window - height))


@dataclass(frozen=True)
class Cutting:
    """Chosen objects in canvas pixels, the pixels of their picture, and which of those show them."""

    pixels: np.ndarray  # (h, w, 3) uint8, mirrored where the objects are
    cover: np.ndarray  # (h, w) bool, cut at the picture's frame
    left: int  # of the frame on the canvas
    top: int
    objects: Instances


def cut_out(guest: Guest, image: np.ndarray, objects: Instances, original: tuple[int, int], canvas: int, window: int) -> Cutting | None:
    """The chosen objects of a picture resized to `image`; None where it has no outlines, or no object is chosen."""
    polygons = objects.shapes.get("polygons")
    if not isinstance(polygons, Polygons):
        return None
    wanted = torch.from_numpy(np.random.Generator(np.random.Philox(guest.pick)).random(len(objects)) < CHOSEN)
    wanted &= polygons.objects.diff() > 0
    if objects.ignore is not None:
        wanted &= ~objects.ignore
    if not bool(wanted.any()):
        return None
    height, width = image.shape[:2]
    to_frame = scaling(width / original[1], height / original[0])
    sided = any(getattr(shape, "flip", ()) is None for shape in objects.shapes.values())  # points whose sides nobody told apart
    if guest.mirror and not sided:
        image, to_frame = image[:, ::-1], compose(translation(width, 0), scaling(-1, 1), to_frame)
    left, top = guest.offset((height, width), canvas, window)
    framed = objects[wanted].warp(to_frame).clip(height, width)
    outlines = framed.shapes["polygons"]
    assert isinstance(outlines, Polygons)
    return Cutting(image, _union(outlines, height, width), left, top, framed.warp(translation(left, top)))


def lay(canvas: np.ndarray, cutting: Cutting, left: int, top: int) -> None:
    """Write the objects' pixels into `canvas` (h, w, 3), whose first pixel is (left, top) of the view's canvas."""
    x, y = cutting.left - left, cutting.top - top
    own_x, own_y = max(-x, 0), max(-y, 0)  # first pixel of the picture that lies on the canvas
    place = canvas[max(y, 0) :, max(x, 0) :]
    cover = cutting.cover[own_y : own_y + place.shape[0], own_x : own_x + place.shape[1]]
    source = cutting.pixels[own_y : own_y + place.shape[0], own_x : own_x + place.shape[1]]
    np.copyto(place[: cover.shape[0], : cover.shape[1]], source, where=cover[..., None])


def hide(objects: Instances, cutting: Cutting) -> tuple[Instances, Tensor]:
    """Objects on the canvas less what lies under the cutting, pixel by pixel; and the share of each that is left, (n,)."""
    polygons = objects.shapes["polygons"]
    assert isinstance(polygons, Polygons)
    edges = torch.cat((polygons.bounds()[:, :2].floor(), polygons.bounds()[:, 2:].ceil()), 1).long().tolist()
    rings: list[Sequence[np.ndarray]] = [polygons.parts(i) for i in range(len(objects))]
    left = torch.ones(len(objects))
    for i, (x1, y1, x2, y2) in enumerate(edges):
        under = _window(cutting, x1, y1, (y2 - y1, x2 - x1))
        if not under.any():
            continue
        own = polygons[i : i + 1].warp(translation(-x1, -y1)).rasterise(*under.shape)[0].numpy()
        kept = own & ~under
        whole, rest = int(own.sum()), int(kept.sum())
        if rest < whole:
            rings[i], left[i] = mask_rings(kept, x1, y1), rest / whole
    return replace(objects, shapes={**objects.shapes, "polygons": Polygons.from_rings(rings)}), left


def _union(polygons: Polygons, height: int, width: int) -> np.ndarray:
    """The pixels that any of the polygons fills, (height, width) bool."""
    return covered(polygons.runs(height, width), height, width)


def _window(cutting: Cutting, left: int, top: int, shape: tuple[int, int]) -> np.ndarray:
    """The cover under a rectangle of the canvas, (h, w) bool."""
    under = np.zeros(shape, np.bool_)
    x, y = left - cutting.left, top - cutting.top
    part = cutting.cover[max(y, 0) : max(y + shape[0], 0), max(x, 0) : max(x + shape[1], 0)]
    under[max(-y, 0) : max(-y, 0) + part.shape[0], max(-x, 0) : max(-x, 0) + part.shape[1]] = part
    return under

"""From canvas pixels back to the pixels of the original image."""

from __future__ import annotations

import torch

from ..geometry import Letterbox
from ..types import Instances


def restore(instances: Instances, letterbox: Letterbox) -> Instances:
    """Objects in original pixels by the exact inverse of `letterbox`, clipped to the image; those wholly in the padding are left out."""
    moved = instances.warp(torch.linalg.inv(letterbox.matrix())).clip(letterbox.height, letterbox.width)
    bounds = moved.shapes["boxes"].bounds()  # a point has no area, and still is
    visible = (bounds[:, 2:] > bounds[:, :2]).all(1)
    return moved if bool(visible.all()) else moved[visible]

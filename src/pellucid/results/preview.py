"""The labels of a data set on its pictures, to be looked at before anything is trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image

from ..data.images import read_image
from ..data.index import Index
from ..draw import contact_sheet
from ..types import Instances

OUTLINES = {"masks", "polygons", "rboxes"}  # shapes beside which a box says nothing more


def label_sheet(index: Index, count: int = 16, columns: int = 4, tile: int = 480) -> Image.Image:
    """A sheet of `count` pictures, taken evenly from all of them, with their objects drawn as the task sees them."""
    rows = np.unique(np.linspace(0, len(index) - 1, min(count, len(index))).round().astype(int)).tolist()
    pictures = [read_image(index.path(row)) for row in rows]
    return contact_sheet(pictures, [telling_shapes(index.instances(row)) for row in rows], index.names, columns, tile, len(index.names) > 1)


def telling_shapes(instances: Instances) -> Instances:
    """The objects without their boxes where another shape says how far they reach."""
    others = {name: shape for name, shape in instances.shapes.items() if name != "boxes"}
    return replace(instances, shapes=others) if OUTLINES & set(others) else instances

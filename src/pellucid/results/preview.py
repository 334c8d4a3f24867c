"""The labels of a data set on its pictures, to be looked at before anything is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
    pictures = (read_image(index.path(row)) for row in rows)
    return contact_sheet(pictures, [telling_shapes(index.instances(row)) for row in rows], index.names, columns, tile, len(index.names) > 1)


def telling_shapes(instances: Instances) -> Instances:
    """The objects without their boxes where another shape says how far they reach."""
    others = {name: shape for name, shape in instances.shapes.items() if name != "boxes"}
    return replace(instances, shapes=others) if OUTLINES & set(others) else instances


def some_rows(images: int, count: int, seed: int) -> list[int]:
    """At most `count` of `images` rows, drawn by the seed, rising."""
    return sorted(np.random.default_rng(seed).permutation(images)[:count].tolist())


def write_sheet(index: Index, out: str | Path, columns: int = 4) -> Path:
    """The sheet of all pictures of `index` as a file, numbered if `out` is there; the file."""
    target, number = Path(out), 1
    while target.exists():
        number += 1
        target = Path(out).with_name(f"{Path(out).stem}-{number}{Path(out).suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    label_sheet(index, len(index), columns).save(target)
    return target

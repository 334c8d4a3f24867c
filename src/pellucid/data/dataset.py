"""What a worker does for one key: read pixels, make or place the picture, move its objects. It holds no state that changes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import Dataset

from ..augment.copy_paste import Cutting, cut_out
from ..augment.paste import FILL, Room, blank, layer, move
from ..augment.plan import View, plan
from ..augment.presets import AugmentConfig
from ..errors import PellucidWarning
from ..geometry.affine import Letterbox
from ..types import ImageMeta, Instances, Layer, Sample
from .ring import Drawn, Ring

if TYPE_CHECKING:
    from .cache import ImageStore
    from .index import Index


@dataclass(frozen=True)
class TrainingSet(Dataset):
    """Augmented samples by (epoch, row); equal keys give equal samples in any process."""

    index: Index
    store: ImageStore  # gives pictures with their longest side resized to S
    config: AugmentConfig
    size: int  # S
    seed: int
    close: int | None = None  # from this epoch on neither mosaic nor mixup
    ring: Ring | None = None  # where workers draw their pixels

    def __len__(self) -> int:
        return len(self.index)

    def __getitems__(self, keys: Sequence[tuple[int, int]]) -> Drawn:
        """A batch, drawn into the next slot of the ring."""
        slot = None if self.ring is None else self.ring.slot()
        return Drawn([self._sample(key, blank if slot is None else slot.room) for key in keys], slot)

    def __getitem__(self, key: tuple[int, int]) -> Sample:
        return self._sample(key, blank)

    def _sample(self, key: tuple[int, int], room: Room) -> Sample:
        """A sample whose first layer goes into `room`; the second ones lie behind all first ones, and are copied there later."""
        epoch, row = key
        open_mosaic = self.close is None or epoch < self.close
        chosen = plan(len(self), self.config, self.size, self.seed, epoch, row, open_mosaic)
        views = [self._view(view, room if place == 0 else blank) for place, view in enumerate(chosen.views)]
        objects = Instances.cat([objects for _, objects in views])
        return Sample(tuple(pixels for pixels, _ in views), chosen.share, chosen.color, objects, meta(self.index, row))

    def _view(self, view: View, room: Room) -> tuple[Layer, Instances]:
        images = [self.store[row] for row in view.rows]
        originals = [original_size(self.index, row) for row in view.rows]
        objects = [self.index.instances(row) for row in view.rows]
        cutting = self._cutting(view)
        return layer(view, images, cutting, room), move(view, objects, originals, [image.shape[:2] for image in images], cutting)

    def _cutting(self, view: View) -> Cutting | None:
        """What is pasted over the view."""
        guest = view.guest
        if guest is None:
            return None
        objects, original = self.index.instances(guest.row), original_size(self.index, guest.row)
        return cut_out(guest, self.store[guest.row], objects, original, view.canvas, self.size) if "polygons" in objects.shapes else None


@dataclass(frozen=True)
class ValidationSet(Dataset):
    """Samples by row as prediction sees them: letterboxed, objects in canvas pixels, ignored ones still marked."""

    index: Index
    store: ImageStore
    size: int  # S

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: int) -> Sample:
        height, width = original_size(self.index, row)
        box = Letterbox.fit(height, width, self.size)
        canvas = np.full((self.size, self.size, 3), FILL, np.uint8)
        canvas[box.top : box.top + box.new_height, box.left : box.left + box.new_width] = self.store[row]
        objects = self.index.instances(row).warp(box.matrix()).clip(self.size, self.size)
        pixels = Layer(torch.from_numpy(canvas), torch.eye(3, dtype=torch.float64))
        return Sample((pixels,), 1.0, torch.tensor([0.0, 1.0, 1.0]), objects, meta(self.index, row, box))


def without_mirrors(config: AugmentConfig, index: Index) -> AugmentConfig:
    """`config`, without flips, and one warning, where keypoints have sides and the data do not say which change places in a mirror."""
    if index.keypoints is None or index.keypoints.flip is not None or not (config.fliplr or config.flipud):
        return config
    warnings.warn(
        "pictures are not mirrored, since the data do not say which keypoints change places in a mirror; "
        "give flip_idx, or names with left and right",
        PellucidWarning,
        stacklevel=2,
    )
    return replace(config, fliplr=0.0, flipud=0.0)


def without_pastes(config: AugmentConfig, index: Index, tell: bool = True) -> AugmentConfig:
    """`config`, without copy-paste, and one warning if `tell`, where no object has an outline along which it could be cut out."""
    column = index.columns.get("polygons")
    if not config.copy_paste or (column is not None and len(column.values)):
        return config
    if tell:
        warnings.warn(
            f"nothing is pasted for copy_paste={config.copy_paste:g}, since none of the {len(index.labels)} objects in {len(index)} "
            "pictures was read with an outline; train a model of outlines, or give copy_paste=0",
            PellucidWarning,
            stacklevel=2,
        )
    return replace(config, copy_paste=0.0)


def original_size(index: Index, row: int) -> tuple[int, int]:
    """(height, width) of the picture of `row`, after EXIF orientation."""
    height, width = index.sizes[row].tolist()
    return height, width


def meta(index: Index, row: int, letterbox: Letterbox | None = None) -> ImageMeta:
    """Which picture `row` is."""
    height, width = original_size(index, row)
    return ImageMeta(row, int(index.ids[row]), str(index.path(row)), height, width, letterbox)

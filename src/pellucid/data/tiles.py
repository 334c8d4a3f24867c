"""Large pictures in overlapping tiles: where the tiles lie, what each holds of the objects, and predictions put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..geometry import Shape
from ..geometry.affine import translation
from ..geometry.keypoints import Keypoints
from ..geometry.polygons import Polygons
from ..geometry.rboxes import PAIRS, RBoxes, rbox_area, rbox_intersection
from ..types import Instances, Layer, Sample
from .columns import encode_rings
from .dataset import meta, original_size
from .images import letterbox, read_image
from .index import Index, IndexBuilder

VISIBLE = 0.7  # of what the best tile shows of an object: in a tile that shows less it is an ignored region
EDGE = 2.0  # px: a prediction that comes so near to a seam may have been cut there
COVERED = 0.7  # of a cut prediction: so much within a better one from another tile, it is a piece of that
SAME = 0.5  # IoU of predictions of one object in two tiles


@dataclass(frozen=True)
class Window:
    """A tile's place in its picture, pixels."""

    left: int
    top: int
    width: int
    height: int


def windows(height: int, width: int, tile: int, overlap: int) -> list[Window]:
    """Tiles of side `tile` that cover a picture, each overlapping its neighbours by `overlap` or more; the last end at the edge."""
    across, down = min(tile, width), min(tile, height)
    return [Window(left, top, across, down) for top in _starts(height, tile, overlap) for left in _starts(width, tile, overlap)]


def _starts(length: int, tile: int, overlap: int) -> list[int]:
    return [*range(0, max(0, length - tile), tile - overlap), max(0, length - tile)]


def cut(objects: Instances, places: Sequence[Window], visible: float = VISIBLE) -> list[Instances]:
    """What each tile shows of the objects of a picture, in the tile's pixels.

    An object of which a tile shows less than `visible` of the best view that any tile has of it is to be ignored there.
    """
    return [part for part, _ in cut_rows(objects, places, visible)]


def cut_rows(objects: Instances, places: Sequence[Window], visible: float = VISIBLE) -> list[tuple[Instances, Tensor]]:
    """As `cut`, each with the places (m,) of its objects among those of the picture."""
    moved = [objects.warp(translation(-place.left, -place.top)) for place in places]
    share = torch.stack([part.visible(place.height, place.width) for part, place in zip(moved, places, strict=True)])  # (tiles, n)
    partial = share < visible * share.amax(0)
    ignored = torch.zeros(len(objects), dtype=torch.bool) if objects.ignore is None else objects.ignore
    found = []
    for part, place, seen, less in zip(moved, places, share, partial, strict=True):
        clipped = replace(part.clip(place.height, place.width).tighten(place.height, place.width), ignore=ignored | less)
        bounds = clipped.shapes["boxes"].bounds()
        shown = (seen > 0) & (bounds[:, 2:] > bounds[:, :2]).all(-1)
        found.append((clipped[shown], shown.nonzero()[:, 0]))
    return found


def merge(parts: Sequence[Instances], places: Sequence[Window], size: tuple[int, int], same: float = SAME) -> Instances:
    """Predictions of all tiles (in tile pixels) as those of the picture of (height, width): every shape moved, no object twice.

    Of two predictions of a class from different tiles that overlap by more than `same` one stays: one that no seam may have cut goes
    first, then the better score. A cut one also goes where most of it lies in one that stays.
    """
    whole = Instances.cat([part.warp(translation(place.left, place.top)) for part, place in zip(parts, places, strict=True)])
    assert whole.scores is not None
    pieces = torch.cat([_at_seam(part, place, size) for part, place in zip(parts, places, strict=True)])
    tile = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    order = (whole.scores - 2 * pieces.float()).argsort(descending=True, stable=True)
    whole, pieces, tile = whole[order], pieces[order], tile[order]
    kept = whole[_once(_rectangles(whole), whole.labels, tile, pieces, same)]
    assert kept.scores is not None
    return kept[kept.scores.argsort(descending=True, stable=True)]


def _at_seam(part: Instances, place: Window, size: tuple[int, int]) -> Tensor:
    """Which predictions reach an edge of the tile that is none of the picture, (n,) bool."""
    x1, y1, x2, y2 = part.shapes["boxes"].bounds().unbind(-1)
    height, width = size
    left, top = (x1 <= EDGE) & (place.left > 0), (y1 <= EDGE) & (place.top > 0)
    right = (x2 >= place.width - EDGE) & (place.left + place.width < width)
    bottom = (y2 >= place.height - EDGE) & (place.top + place.height < height)
    return left | top | right | bottom


def _rectangles(objects: Instances) -> Tensor:
    """Rotated boxes (n, 5) float64 of the objects, upright ones where they have no other."""
    turned = next((shape.data for shape in objects.shapes.values() if isinstance(shape, RBoxes)), None)
    if turned is not None:
        return turned.double()
    low, high = objects.shapes["boxes"].bounds().double().chunk(2, -1)
    return torch.cat(((low + high) / 2, high - low, torch.zeros(len(low), 1, dtype=torch.float64)), -1)


def _once(rects: Tensor, labels: Tensor, tile: Tensor, pieces: Tensor, same: float) -> Tensor:
    """Which of n predictions, in the order of their right to stay, remain, (n,) bool."""
    first, second = _rivals(rects, labels, tile)
    shared = rbox_intersection(rects[first], rects[second])
    area = rbox_area(rects)
    either = area[first] + area[second] - shared
    hit = (shared > same * either) | (pieces[second] & (shared > COVERED * area[second]))
    first, second = first[hit], second[hit]
    bounds = torch.searchsorted(first, torch.arange(len(rects) + 1)).tolist()
    alive = torch.ones(len(rects), dtype=torch.bool)
    for place, (start, end) in enumerate(pairwise(bounds)):
        if end > start and alive[place]:
            alive[second[start:end]] = False
    return alive


def _rivals(rects: Tensor, labels: Tensor, tile: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs (earlier, later), sorted, of one class and two tiles whose bounds meet; looked for in chunks."""
    bounds = RBoxes(rects).bounds()
    place = torch.arange(len(rects))
    found = [torch.zeros(0, 2, dtype=torch.int64)]
    step = max(1, PAIRS // max(1, len(rects)))
    for start in range(0, len(rects), step):
        some = slice(start, start + step)
        meet = ((bounds[some, None, :2] < bounds[:, 2:]) & (bounds[:, :2] < bounds[some, None, 2:])).all(-1)
        meet &= (labels[some, None] == labels) & (tile[some, None] != tile) & (place[some, None] < place)
        found.append(meet.nonzero() + torch.tensor([start, 0]))
    first, second = torch.cat(found).unbind(-1)
    return first, second


ROWS: dict[type, Callable[[Any, int], np.ndarray]] = {  # shape, object -> its row in an Index
    RBoxes: lambda shape, i: shape.data[i].numpy(),
    Keypoints: lambda shape, i: shape.data[i].reshape(-1).numpy(),
    Polygons: lambda shape, i: encode_rings(shape.parts(i)),
}


@dataclass(frozen=True, eq=False)
class Tiles:
    """The tiles of all pictures of an Index: an Index of their own, and where each comes from."""

    index: Index  # one row a tile; paths are those of the whole pictures
    rows: tuple[int, ...]  # the picture of each tile
    windows: tuple[Window, ...]

    @classmethod
    def of(cls, index: Index, tile: int, overlap: int, visible: float = VISIBLE) -> Tiles:
        """All tiles of all pictures, in their order."""
        kinds = tuple(name for name in index.instances(0).shapes if name != "boxes") if len(index) else ()
        builder = IndexBuilder(index.root, kinds, index.keypoints)
        rows: list[int] = []
        all_windows: list[Window] = []
        for row in range(len(index)):
            places = windows(*original_size(index, row), tile, overlap)
            for place, objects in zip(places, cut(index.instances(row), places, visible), strict=True):
                builder.image(index.path(row), (place.height, place.width))
                _add(builder, objects, kinds)
            rows += [row] * len(places)
            all_windows += places
        return cls(builder.build(index.names, index.category_ids), tuple(rows), tuple(all_windows))


def _add(builder: IndexBuilder, objects: Instances, kinds: Sequence[str]) -> None:
    assert objects.ignore is not None
    shapes: dict[str, Shape] = {name: objects.shapes[name] for name in kinds}
    plain = zip(objects.labels.tolist(), objects.shapes["boxes"].bounds().tolist(), objects.ignore.tolist(), strict=True)
    for i, (label, box, ignore) in enumerate(plain):
        builder.object(label, box, ignore, **{name: ROWS[type(shape)](shape, i) for name, shape in shapes.items()})


@dataclass(frozen=True)
class TileSet(Dataset):
    """Samples by tile as prediction sees them: cut from the whole picture, letterboxed."""

    tiles: Tiles
    size: int  # S

    def __len__(self) -> int:
        return len(self.tiles.windows)

    def __getitem__(self, row: int) -> Sample:
        index = self.tiles.index
        canvas, placed = letterbox(crop(_whole(str(index.path(row))), self.tiles.windows[row]), self.size)
        objects = index.instances(row).warp(placed.matrix()).clip(self.size, self.size)
        pixels = Layer(torch.from_numpy(canvas), torch.eye(3, dtype=torch.float64))
        return Sample((pixels,), 1.0, torch.tensor([0.0, 1.0, 1.0]), objects, meta(index, row, placed))


def crop(image: np.ndarray, place: Window) -> np.ndarray:
    """The pixels of a tile, (height, width, 3)."""
    return image[place.top : place.top + place.height, place.left : place.left + place.width]


@lru_cache(maxsize=1)
def _whole(path: str) -> np.ndarray:
    """A picture's pixels; tiles that follow each other are cut from one."""
    return read_image(path)

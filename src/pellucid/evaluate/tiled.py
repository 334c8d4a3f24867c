"""Scores of large pictures looked at tile by tile: by tile, and by whole picture after the tiles are put together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from ..config import merged
from ..data.dataset import meta, original_size
from ..data.tiles import SAME, Tiles, Window, merge
from ..errors import UsageError
from ..types import Instances, Prediction
from .run import EvaluateSettings, Meter, PathScores, Scores, evaluate, label_map

if TYPE_CHECKING:
    from ..data.index import Index
    from ..data.module import DataModule
    from ..tasks.base import Task


@dataclass
class _Whole:
    """Gathers the tiles of each picture and counts the picture once all are there."""

    index: Index
    tiles: Tiles
    meters: dict[str, Meter]
    left: Counter[tuple[str, int]]  # tiles still to come
    parts: dict[tuple[str, int], list[tuple[Instances, Window]]] = field(default_factory=lambda: defaultdict(list))

    def __call__(self, path: str, predictions: list[Prediction]) -> None:
        for prediction in predictions:
            row = self.tiles.rows[prediction.meta.row]
            self.parts[path, row].append((prediction.instances, self.tiles.windows[prediction.meta.row]))
            self.left[path, row] -= 1
            if not self.left[path, row]:
                self._count(path, row)

    def _count(self, path: str, row: int) -> None:
        parts, places = zip(*self.parts.pop((path, row)), strict=True)
        objects = merge(parts, places, original_size(self.index, row))
        self.meters[path].update([Prediction(meta(self.index, row), objects)])


def evaluate_tiles(
    model: nn.Module,
    data: DataModule,
    split: str,
    task: Task,
    names: Sequence[str] | None,
    tile: int,
    overlap: int,
    **settings: Any,
) -> Scores:
    """Scores of `model` on the whole pictures of a split of `data`, each looked at in tiles; those by tile are named "tile/obb/ap", ...

    `settings` as of `evaluate`. Time is that of a whole picture.
    """
    chosen = merged(EvaluateSettings(), settings)
    if chosen.gather is not None:
        raise UsageError("gather: expected none beside tiles, since all tiles of a picture are put together in one process; leave it out")
    index = data.index(split)
    tiles = Tiles.of(index, tile, overlap)
    labels = label_map(names, index.names, chosen.single_cls)
    meters = {path: Meter(index, task, labels, chosen.curves) for path in chosen.paths}
    whole = _Whole(index, tiles, meters, Counter({(path, row): count for path in meters for row, count in Counter(tiles.rows).items()}))
    by_tile = evaluate(model, data.tile_loader(tiles), tiles.index, task, names, whole, **{**settings, "curves": False})
    times = len(tiles.rows) / len(index)
    paths = {path: _joined(meter, by_tile.paths[path], times) for path, meter in meters.items()}
    protocol = by_tile.protocol.replace(" objects; ", " objects of a tile; ", 1)
    stated = f"{protocol}; tiles of {tile} px that share {overlap}, put together at IoU {SAME}"
    return Scores(task.name, len(index), stated, paths, by_tile.notes)


def _joined(meter: Meter, by_tile: PathScores, times: float) -> PathScores:
    whole = meter.scores({stage: value * times for stage, value in by_tile.speed.items()})
    whole.metrics |= {f"tile/{name}": value for name, value in by_tile.metrics.items()}
    return whole

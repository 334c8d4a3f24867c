"""Pictures in, results out, a few at a time: memory does not grow with their number."""

from __future__ import annotations

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from ..config import STRIDE, merged
from ..data.images import letterbox
from ..data.tiles import crop, merge, windows
from ..decode import PATHS, decode, restore
from ..errors import DataError, PellucidWarning, UsageError
from ..geometry import Letterbox
from ..numerics.islands import PRECISIONS, autocast
from ..results import Result
from ..rules import did_you_mean, tile_rules
from ..types import ImageMeta, Instances
from ..zoo import Card, make_task
from .reading import read_ahead
from .ready import ready
from .sources import Source, open_sources

if TYPE_CHECKING:
    from ..tasks import Task

NAMED = 3  # files that a warning names
AHEAD = 2  # pictures read ahead of the next batch


@dataclass(frozen=True)
class PredictSettings:
    """How to look and what to keep."""

    imgsz: int | None = None  # None: the size that the model was trained at
    conf: float = 0.25
    iou: float = 0.7
    max_det: int = 300  # of a picture, or of each tile
    path: Literal["e2e", "nms"] = "e2e"
    classes: tuple[int | str, ...] | None = None  # the user's class ids, or names
    agnostic_nms: bool = False
    batch: int = 1
    tile: int | None = None  # side of tiles that pictures are cut into
    overlap: int | None = None  # pixels that tiles share; None: see `tile_rules`
    device: str | torch.device | None = None  # None: where the model is
    precision: Literal["32", "16", "bf16"] = "32"  # arithmetic of the network
    strict: bool = False  # stop at the first picture that cannot be read

    def __post_init__(self) -> None:
        if self.imgsz is not None and (self.imgsz < STRIDE or self.imgsz % STRIDE):
            raise UsageError(f"imgsz: expected a multiple of {STRIDE}, got {self.imgsz}; try {max(1, round(self.imgsz / STRIDE)) * STRIDE}")
        if not (0 <= self.conf <= 1 and 0 <= self.iou <= 1):
            raise UsageError(f"conf and iou: expected numbers from 0 to 1, got {self.conf} and {self.iou}")
        if self.max_det < 1 or self.batch < 1:
            raise UsageError(f"max_det and batch: expected at least 1, got {self.max_det} and {self.batch}")
        tile_rules(self)
        if self.precision not in PRECISIONS:
            raise UsageError(f"precision: expected one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.path not in PATHS:
            raise UsageError(f"path: expected one of {', '.join(PATHS)}, got {self.path!r}")
        if self.agnostic_nms and self.path != "nms":
            raise UsageError("agnostic_nms: expected path='nms', since the e2e path suppresses nothing; add it or leave agnostic_nms out")


def predict(
    model: nn.Module,
    card: Card,
    source: Any,
    color: str = "rgb",
    vid_stride: int = 1,
    unread: Callable[[str, DataError], None] | None = None,
    **settings: Any,
) -> Iterator[Result]:
    """Results for each picture of `source` (see `open_sources`), in its order; `settings` are fields of `PredictSettings`.

    The next pictures are read by threads while the model looks. Those that cannot be read are left out with one warning at the end, and
    `unread(path, error)` is told of each; DataError if none can, or at the first if `strict`. Files of several pages are warned about.
    """
    chosen = merged(PredictSettings(), settings)
    device = torch.device(chosen.device or next((p.device for p in model.parameters()), "cpu"))
    network = ready(model, "one" if chosen.path == "e2e" else "both", device)
    job = _Job(network, card, make_task(card), chosen, _class_positions(chosen.classes, card), device)
    return _results(job, open_sources(source, color, vid_stride), _Log(chosen.strict, unread))


@dataclass(frozen=True)
class _Job:
    model: nn.Module
    card: Card
    task: Task
    settings: PredictSettings
    classes: list[int] | None
    device: torch.device


@dataclass(frozen=True)
class _Read:
    """A picture that was read."""

    source: Source
    image: np.ndarray  # (h, w, 3)
    meta: ImageMeta
    seconds: float


@dataclass
class _Log:
    """What a user has to be told of the pictures: by the way, and counted at the end."""

    strict: bool
    unread: Callable[[str, DataError], None] | None
    failures: list[DataError] = field(default_factory=list)
    long: list[str] = field(default_factory=list)  # with several pages

    def failed(self, path: str, error: DataError) -> None:
        if self.strict:
            raise error
        self.failures.append(error)
        if self.unread is not None:
            self.unread(path, error)

    def end(self, done: int) -> None:
        """Raise the first failure if nothing was `done`; warn of what was not read."""
        if self.failures and not done:
            raise self.failures[0]
        if self.failures:
            every = done + len(self.failures)
            _warn(f"{len(self.failures)} of {every} pictures could not be read", [str(failure) for failure in self.failures])
        if self.long:
            _warn(f"of {len(self.long)} files with several pages the first page alone was looked at; save each page as a file", self.long)


def _warn(sentence: str, places: Sequence[str]) -> None:
    warnings.warn(PellucidWarning(f"{sentence}: {'; '.join(places[:NAMED])}"), stacklevel=4)


def _results(job: _Job, sources: Iterator[Source], log: _Log) -> Iterator[Result]:
    done = 0
    count = 1 if job.settings.tile else job.settings.batch
    with closing(_read_all(job, sources, log)) as pictures:
        while group := list(islice(pictures, count)):
            yield from _look_in_tiles(job, group[0]) if job.settings.tile else _look(job, group)
            done += len(group)
    log.end(done)


def _read_all(job: _Job, sources: Iterator[Source], log: _Log) -> Generator[_Read]:
    """Pictures that can be read; of the others `log` is told."""
    with closing(read_ahead(sources, _read, job.settings.batch + AHEAD)) as coming:
        for row, future in enumerate(coming):
            try:
                source, image, pages, seconds = future.result()
            except DataError as error:
                log.failed(error.picture or "source", error)
                continue
            if pages > 1:
                log.long.append(f"{source.path} ({pages} pages)")
            yield _Read(source, image, ImageMeta(row, row, source.path, image.shape[0], image.shape[1]), seconds)


def _read(source: Source) -> tuple[Source, np.ndarray, int, float]:
    start = time.perf_counter()
    image, pages = source.read_first()
    return source, image, pages, time.perf_counter() - start


def _look(job: _Job, group: list[_Read]) -> list[Result]:
    """Results of one batch."""
    placed, found, times = _find(job, [read.image for read in group])
    rows = zip(group, placed, found, strict=True)
    return [_result(job, replace(read, meta=replace(read.meta, letterbox=box)), objects, times) for read, box, objects in rows]


def _look_in_tiles(job: _Job, read: _Read) -> list[Result]:
    """The result of one picture, looked at tile by tile."""
    settings = job.settings
    assert settings.tile is not None
    assert settings.overlap is not None  # by `tile_rules`
    places = windows(read.meta.height, read.meta.width, settings.tile, settings.overlap)
    parts: list[Instances] = []
    total: Counter[str] = Counter()
    for start in range(0, len(places), settings.batch):
        group = [crop(read.image, place) for place in places[start : start + settings.batch]]
        _, found, times = _find(job, group)
        parts += found
        total.update({stage: value * len(group) for stage, value in times.items()})
    whole = merge(parts, places, (read.meta.height, read.meta.width))
    return [_result(job, read, whole, total)]


@torch.no_grad()
def _find(job: _Job, images: Sequence[np.ndarray]) -> tuple[list[Letterbox], list[Instances], dict[str, float]]:
    """How each picture was placed, its objects in its pixels, and milliseconds a picture by stage."""
    start = time.perf_counter()
    canvases, placed = zip(*(letterbox(image, job.settings.imgsz or job.card.imgsz) for image in images), strict=True)
    batch = torch.from_numpy(np.stack(canvases)).permute(0, 3, 1, 2).contiguous()  # (B, 3, S, S)
    ready = time.perf_counter()
    with autocast(job.device, job.settings.precision):
        output = job.model(batch.to(job.device))
    if job.device.type == "cuda":
        torch.cuda.synchronize(job.device)
    middle = time.perf_counter()
    s = job.settings
    found = decode(output, job.task, s.path, s.conf, s.iou, s.max_det, s.agnostic_nms, job.classes)
    found = [restore(instances, box) for instances, box in zip(found, placed, strict=True)]
    share = 1000 / len(images)
    times = {"pre": (ready - start) * share, "network": (middle - ready) * share, "post": (time.perf_counter() - middle) * share}
    return list(placed), found, times


def _result(job: _Job, read: _Read, objects: Instances, times: Mapping[str, float]) -> Result:
    names, ids = tuple(job.card.names), tuple(job.card.category_ids)
    speed = {**times, "pre": times["pre"] + 1000 * read.seconds}
    return Result(read.meta, objects, names, ids, read.source.name, read.image, speed, read.source.frame)


def _class_positions(classes: Sequence[int | str] | None, card: Card) -> list[int] | None:
    """Where the user's class ids and names stand in the model; a name that several classes have means all of them."""
    if classes is None:
        return None
    known: dict[int | str, list[int]] = defaultdict(list)
    for position, (number, name) in enumerate(zip(card.category_ids, card.names, strict=True)):
        known[number].append(position)
        known[name].append(position)
    if not classes or set(classes) - set(known):
        shown = ", ".join(f"{number} {name}" for number, name in list(zip(card.category_ids, card.names, strict=True))[:5])
        more = ", ..." if len(card.names) > 5 else ""
        near = did_you_mean([part for part in classes if isinstance(part, str)], card.names)
        raise UsageError(
            f"classes: expected ids or names of the model's classes ({shown}{more}), got {list(classes)}{near or '; choose among them'}"
        )
    return sorted({position for part in classes for position in known[part]})

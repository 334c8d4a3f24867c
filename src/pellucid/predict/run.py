"""Pictures in, results out, a few at a time: memory does not grow with their number."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from ..config import STRIDE, merged
from ..data.images import letterbox, read_image
from ..decode import PATHS, decode, restore
from ..errors import DataError, PellucidWarning, UsageError
from ..geometry import Letterbox
from ..models.build import Detector
from ..results import Result
from ..types import ImageMeta
from ..zoo import Card, make_task
from .sources import Source, open_sources

if TYPE_CHECKING:
    from ..tasks import Task

NAMED = 3  # files that a warning names


@dataclass(frozen=True)
class PredictSettings:
    """How to look and what to keep."""

    imgsz: int | None = None  # None: the size that the model was trained at
    conf: float = 0.25
    iou: float = 0.7
    max_det: int = 300
    path: Literal["e2e", "nms"] = "e2e"
    classes: tuple[int, ...] | None = None  # the user's class ids
    agnostic_nms: bool = False
    batch: int = 1
    device: str | torch.device | None = None  # None: where the model is
    strict: bool = False  # stop at the first picture that cannot be read

    def __post_init__(self) -> None:
        if self.imgsz is not None and (self.imgsz < STRIDE or self.imgsz % STRIDE):
            raise UsageError(f"imgsz: expected a multiple of {STRIDE}, got {self.imgsz}; try {max(1, round(self.imgsz / STRIDE)) * STRIDE}")
        if not (0 <= self.conf <= 1 and 0 <= self.iou <= 1):
            raise UsageError(f"conf and iou: expected numbers from 0 to 1, got {self.conf} and {self.iou}")
        if self.max_det < 1 or self.batch < 1:
            raise UsageError(f"max_det and batch: expected at least 1, got {self.max_det} and {self.batch}")
        if self.path not in PATHS:
            raise UsageError(f"path: expected one of {', '.join(PATHS)}, got {self.path!r}")
        if self.agnostic_nms and self.path != "nms":
            raise UsageError("agnostic_nms: expected path='nms', since the e2e path suppresses nothing; add it or leave agnostic_nms out")


def predict(model: nn.Module, card: Card, source: Any, **settings: Any) -> Iterator[Result]:
    """Results for each picture of `source` (see `open_sources`), in its order; `settings` are fields of `PredictSettings`.

    Pictures that cannot be read are left out with one warning at the end; DataError if none can, or at the first if `strict`.
    """
    chosen = merged(PredictSettings(), settings)
    device = torch.device(chosen.device or next((p.device for p in model.parameters()), "cpu"))
    if isinstance(model, Detector):
        model = model.fuse("one" if chosen.path == "e2e" else "both")
    job = _Job(model.to(device).eval(), card, make_task(card), chosen, _class_positions(chosen.classes, card), device)
    return _results(job, open_sources(source))


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
    """A picture that was read, and its canvas."""

    source: Source
    image: np.ndarray  # (h, w, 3)
    canvas: np.ndarray  # (S, S, 3)
    placed: Letterbox
    meta: ImageMeta
    seconds: float


def _results(job: _Job, sources: Iterator[Source]) -> Iterator[Result]:
    failures: list[DataError] = []
    done = 0
    pictures = _read_all(job, sources, failures)
    while group := list(islice(pictures, job.settings.batch)):
        yield from _look(job, group)
        done += len(group)
    if failures and not done:
        raise failures[0]
    if failures:
        named = "; ".join(str(failure) for failure in failures[:NAMED])
        warnings.warn(PellucidWarning(f"{len(failures)} of {done + len(failures)} pictures could not be read: {named}"), stacklevel=2)


def _read_all(job: _Job, sources: Iterator[Source], failures: list[DataError]) -> Iterator[_Read]:
    """Pictures on their canvases; those that cannot be read go to `failures`."""
    size = job.settings.imgsz or job.card.imgsz
    for row, source in enumerate(sources):
        start = time.perf_counter()
        try:
            image = read_image(source.image)
        except DataError as error:
            if job.settings.strict:
                raise
            failures.append(error)
            continue
        canvas, placed = letterbox(image, size)
        meta = ImageMeta(row, row, source.path, image.shape[0], image.shape[1], placed)
        yield _Read(source, image, canvas, placed, meta, time.perf_counter() - start)


@torch.no_grad()
def _look(job: _Job, group: list[_Read]) -> list[Result]:
    """Results of one batch."""
    start = time.perf_counter()
    images = torch.from_numpy(np.stack([read.canvas for read in group])).permute(0, 3, 1, 2).contiguous()  # (B, 3, S, S)
    output = job.model(images.to(job.device))
    if job.device.type == "cuda":
        torch.cuda.synchronize(job.device)
    middle = time.perf_counter()
    s = job.settings
    found = decode(output, job.task, s.path, s.conf, s.iou, s.max_det, s.agnostic_nms, job.classes)
    found = [restore(instances, read.placed) for instances, read in zip(found, group, strict=True)]
    share = 1000 / len(group)
    network, post = (middle - start) * share, (time.perf_counter() - middle) * share
    return [
        Result(
            read.meta,
            instances,
            tuple(job.card.names),
            tuple(job.card.category_ids),
            read.source.name,
            read.image,
            {"pre": 1000 * read.seconds, "network": network, "post": post},
        )
        for read, instances in zip(group, found, strict=True)
    ]


def _class_positions(classes: Sequence[int] | None, card: Card) -> list[int] | None:
    """Where the user's class ids stand in the model."""
    if classes is None:
        return None
    known = {number: position for position, number in enumerate(card.category_ids)}
    if not classes or set(classes) - set(known):
        shown = ", ".join(f"{number} {name}" for number, name in list(zip(card.category_ids, card.names, strict=True))[:5])
        raise UsageError(
            f"classes: expected class ids of the model ({shown}{', ...' if len(known) > 5 else ''}), got {list(classes)}; choose among them"
        )
    return [known[number] for number in classes]

"""Score a detector on a data set: one forward pass, both decode paths, the same functions as prediction."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..augment.apply import apply
from ..config import merged
from ..decode import PATHS, decode, restore
from ..errors import UsageError
from ..numerics.islands import autocast
from ..rules import did_you_mean
from ..types import Batch, ImageMeta, Instances, Packed, Prediction
from .coco import BEST, METRICS, CocoMetric
from .confusion import ConfusionMatrix, CurveMeter, Curves

if TYPE_CHECKING:
    from ..data.index import Index
    from ..tasks.base import Task

Watch = Callable[[str, list[Prediction]], None]


@dataclass(frozen=True)
class EvaluateSettings:
    """How predictions are made and which are counted."""

    paths: tuple[str, ...] = PATHS
    conf: float = 0.001
    iou: float = 0.7
    max_det: int = 300  # of an image, or of each tile
    device: str | torch.device | None = None  # None: where the model is
    precision: str = "32"  # 32, 16, bf16
    weights: str = ""  # "raw" or "EMA", for the protocol line
    curves: bool = True  # confusion matrix and threshold curves too
    single_cls: bool = False  # every class of the model counts as the one class of the data
    gather: Callable[[Any], list[Any]] | None = None  # what all processes have seen, from what this one has, if each scores its own images


@dataclass
class PathScores:
    """What one decode path scored."""

    metrics: dict[str, float]  # {"box/ap": ..., "box/ap50": ...}, nan where there is no ground truth
    per_class: list[dict[str, Any]] = field(repr=False)  # name, id, n, ap, ap50
    speed: dict[str, float]  # ms per image: pre, network, post
    coco: CocoMetric = field(repr=False)  # writes predictions.json and the ground truth
    confusion: ConfusionMatrix | None = field(repr=False)
    curves: Curves | None = field(repr=False)


@dataclass
class Scores:
    """The result of `evaluate`."""

    task: str
    images: int
    protocol: str  # one line
    paths: dict[str, PathScores]
    notes: tuple[str, ...] = ()  # sentences about what could not be scored

    @property
    def gap(self) -> float | None:
        """First metric (AP) of the end-to-end path minus that of the suppression path; None unless both were scored."""
        if set(PATHS) - set(self.paths):
            return None
        first, second = (next(iter(self.paths[path].metrics.values())) for path in PATHS)
        return first - second

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with None where a score is undefined."""
        whole: dict[str, Any] = {"task": self.task, "images": self.images, "protocol": self.protocol}
        for path, scores in self.paths.items():
            whole[path] = {**scores.metrics, "speed": scores.speed, "per_class": scores.per_class}
        return _without_nan({**whole, "gap": self.gap, "notes": list(self.notes)})


def evaluate(
    model: nn.Module,
    loader: Iterable[Batch | Packed],
    index: Index,
    task: Task,
    names: Sequence[str] | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> Scores:
    """Scores of `model` on the images of `loader`, whose metas point into `index`; `settings` are fields of `EvaluateSettings`.

    `names` are the model's classes, matched to those of the data by name; UsageError if the names differ. The model's mode is kept.
    `watch(path, predictions)` sees the predictions of each batch.
    """
    chosen = merged(EvaluateSettings(), settings)
    labels = label_map(names, index.names, chosen.single_cls)
    device = torch.device(chosen.device or next((p.device for p in model.parameters()), "cpu"))
    clock = _Clock(device)
    meters = {path: Meter(index, task, labels, chosen.curves) for path in chosen.paths}
    training = model.training
    model.to(device).eval()
    try:
        measured = _measure(model, _ready(loader, device, clock), task, chosen, meters, clock, watch)
        for meter in meters.values() if chosen.gather is not None else ():
            meter.coco.merge(chosen.gather(meter.coco.state()))
    finally:
        model.train(training)
    scores = {path: meter.scores(clock.speed(measured, path)) for path, meter in meters.items()}
    images = max(len(meter.coco.state()) for meter in meters.values())  # of all processes, each once
    notes = [] if any(row["n"] for meter in scores.values() for row in meter.per_class) else ["no ground truth: the scores are undefined"]
    if names is not None and len(names) == len(index.names) == 1 and list(names) != list(index.names) and not chosen.single_cls:
        notes.append(f"the model's one class, {names[0]}, is compared with the data's one class, {index.names[0]}")
    notes += next(iter(meters.values())).coco.notes()
    stated = [text for text in (METRICS[kind].states(index) for kind in task.metrics) if text]
    return Scores(task.name, images, "; ".join((_protocol(chosen, task), *stated)), scores, tuple(notes))


@torch.no_grad()
def _measure(
    model: nn.Module,
    batches: Iterator[Batch],
    task: Task,
    chosen: EvaluateSettings,
    meters: dict[str, Meter],
    clock: _Clock,
    watch: Watch | None = None,
) -> int:
    """One pass over the data; the number of images."""
    images = 0
    for batch in batches:
        with clock("network"), autocast(batch.images.device, chosen.precision):
            output = model(batch.images)
        for path, meter in meters.items():
            with clock(path):
                found = decode(output, task, path, chosen.conf, chosen.iou, chosen.max_det)
                placed = [place(instances, meta) for instances, meta in zip(found, batch.metas, strict=True)]
            meter.update(placed)
            if watch is not None:
                watch(path, placed)
        images += len(batch)
    return images


def place(instances: Instances, meta: ImageMeta) -> Prediction:
    """Objects on the canvas as a prediction in original pixels."""
    return Prediction(meta, instances if meta.letterbox is None else restore(instances, meta.letterbox))


class Meter:
    """Everything that is counted on one path."""

    def __init__(self, index: Index, task: Task, labels: Tensor | None, curves: bool) -> None:
        self.index = index
        self.labels = labels
        self.coco = CocoMetric(index, task.metrics)
        self.curves = curves

    def update(self, predictions: list[Prediction]) -> None:
        self.coco.update([self._renamed(prediction) for prediction in predictions])

    def scores(self, speed: dict[str, float]) -> PathScores:
        confusion, curves = self._matched() if self.curves else (None, None)
        return PathScores(self.coco.compute(), self.coco.per_class(), speed, self.coco, confusion, curves)

    def _matched(self) -> tuple[ConfusionMatrix, Curves]:
        """Of every image that was seen, by whichever process."""
        confusion, curves = ConfusionMatrix(len(self.index.names)), CurveMeter(len(self.index.names))
        for row, found in self.coco.state().items():
            truth = self.index.instances(row)
            confusion.update(found, truth)
            curves.update(found, truth)
        return confusion, curves.compute()

    def _renamed(self, prediction: Prediction) -> Prediction:
        if self.labels is None:
            return prediction
        old = prediction.instances
        return Prediction(prediction.meta, Instances(self.labels[old.labels], old.shapes, old.scores, old.ignore))


@dataclass
class _Clock:
    """Seconds by stage; waits for the device at both ends of a stage, so that work is counted where it was asked for."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = self._now()
        yield
        self.seconds[stage] += self._now() - start

    def speed(self, images: int, path: str) -> dict[str, float]:
        """Milliseconds per image of reading, of the network, and of `path`'s decoding."""
        stages = {"pre": "pre", "network": "network", "post": path}
        return {name: 1000 * self.seconds[stage] / max(images, 1) for name, stage in stages.items()}

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def _ready(loader: Iterable[Batch | Packed], device: torch.device, clock: _Clock) -> Iterator[Batch]:
    """Batches on the device."""
    iterator = iter(loader)
    while True:
        with clock("pre"):
            batch = next(iterator, None)
            if batch is None:
                return
            batch = batch.to(device)
            batch = apply(batch) if isinstance(batch, Packed) else batch
        yield batch


def label_map(model_names: Sequence[str] | None, data_names: Sequence[str], single: bool = False) -> Tensor | None:
    """The data's class for each class of the model, by name or, if `single`, the only one; None where nothing is to be changed."""
    if single and model_names is not None:
        return torch.zeros(len(model_names), dtype=torch.long)
    if model_names is None or list(model_names) == list(data_names) or len(model_names) == len(data_names) == 1:
        return None
    if sorted(model_names) != sorted(data_names):
        raise UsageError(
            f"expected data with the model's {len(model_names)} classes ({_few(model_names)}), got {len(data_names)} ({_few(data_names)}); "
            f"score on data with the same names, or train on this data first{did_you_mean(data_names, model_names)}"
        )
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(data_names):
        places[name].append(place)
    return torch.tensor([places[name].pop(0) for name in model_names])  # of equal names the first is the first


def _few(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _protocol(chosen: EvaluateSettings, task: Task) -> str:
    by_tool = any(METRICS[kind].score is None for kind in task.metrics)
    tool = f", best {BEST} of a class on an image, crowds ignored, by faster-coco-eval {version('faster-coco-eval')}" if by_tool else ""
    weights = f"; {chosen.weights} weights" if chosen.weights else ""
    said = {"e2e": "e2e: top-k of the one-to-one branch", "nms": f"nms: one-to-many branch, IoU {chosen.iou}"}
    counted = f"score >= {chosen.conf}, at most {chosen.max_det} objects; {'; '.join(said[path] for path in chosen.paths)}"
    return f"COCO AP at IoU 0.50:0.95{tool}; {counted}; precision {chosen.precision}{weights}"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value

"""The facade: a model by name or file, and what can be done with it. The command line calls the same functions.

What only training or scoring needs is imported there, so that looking at a picture starts at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import BenchConfig, ExportConfig, InfoConfig, PredictConfig, TrainConfig, ValConfig, merged, required
from .decode import PATHS
from .errors import DataError, PellucidWarning, UsageError
from .export.runtime import Exported, is_exported, open_exported
from .models.count import count_flops, count_parameters
from .train.device import pick_device, pick_precision
from .train.folder import environment, new_folder, unless_empty, write_args, write_json
from .zoo import Card, is_untrained, make_task, open_model, shipped_names

if TYPE_CHECKING:
    import torch

    from .evaluate.run import Scores
    from .export import Export
    from .models.build import Detector
    from .results import Result
    from .train.run import TrainResult

    Network = Detector | Exported

Unread = Callable[[str, DataError], None]
FILES = (
    "project",
    "name",
    "exist_ok",
    "save",
    "save_txt",
    "save_conf",
    "save_crop",
    "save_json",
)  # settings that decide what the command writes


class Model:
    """A network and its card, opened from "<task>-<scale>" (random weights), a shipped name, a weights file, or an exported file.

    `train`, `validate`, `predict`, `export` and `info` take the settings of the command line by the same names.
    """

    def __init__(self, model: str | Path = "detect-n") -> None:
        self._open(str(model))

    def train(self, **settings: Any) -> TrainResult:
        """Train from these weights on `data`; afterwards this model is the best epoch. Fields of `TrainConfig`."""
        from .train.run import resume_config, train

        refuse(settings, "model", "json")
        plain = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
        config = resume_config(plain) if plain.get("resume") else merged(TrainConfig(), {"model": self.name, **plain})
        result = train(config)
        if not result.interrupted:
            self._open(str(result.run_dir / "weights" / "best.safetensors"))
        return result

    def validate(self, data: str | Path, **settings: Any) -> Scores:
        """Scores on a split of `data`, both decode paths. Fields of `ValConfig`."""
        refuse(settings, "model", "json")
        return validate(merged(ValConfig(), {"model": self.name, "data": str(data), **settings}), (self.detector, self.card))[0]

    def predict(self, source: Any, stream: bool = False, color: str = "rgb", **settings: Any) -> list[Result] | Iterator[Result]:
        """Objects in whatever `predict.open_sources` takes: files, folders, videos, URLs, PIL images, arrays (`color`: rgb or bgr), ...

        `stream` gives the results one by one, in constant memory. Fields of `PredictConfig`.
        """
        refuse(settings, "model", "json", *FILES)
        config = merged(PredictConfig(), {"model": self.name, **settings})
        results = predict(config, source, (self.detector, self.card), color)
        return results if stream else list(results)

    def export(self, format: str = "onnx", **settings: Any) -> Export:
        """Write a file that runs without torch, and compare both. Fields of `ExportConfig`."""
        from .export.write import export

        refuse(settings, "model", "json")
        config = merged(ExportConfig(), {"model": self.name, "format": format, **settings})
        done = export(config, None if isinstance(self.detector, Exported) else (self.detector, self.card))
        for line in done.gaps.warnings:
            warnings.warn(PellucidWarning(line), stacklevel=2)
        return done

    def info(self, imgsz: int | None = None) -> dict[str, Any]:
        """Size and cost: model, task, scale, nc, imgsz, params, params_fused, gflops."""
        return describe(self.name, self.detector, self.card, imgsz)

    @property
    def names(self) -> tuple[str, ...]:
        return self.card.names

    def __repr__(self) -> str:
        return f"Model({self.name!r}: {self.card.task}, {len(self.names)} classes)"

    def _open(self, name: str) -> None:
        self.name = name
        self.detector, self.card = open_network(name)


def refuse(settings: Mapping[str, Any], *names: str) -> None:
    """Raise UsageError for a setting of the command line that has no meaning in a call."""
    for name in names:
        if name in settings:
            raise UsageError(f"{name}: expected settings of a call, got one of the command line; use what the call returns instead")


def open_network(name: str) -> tuple[Network, Card]:
    """A model of any kind by its name: an exported file, else as `zoo.open_model` has it."""
    return open_exported(name) if is_exported(name) else open_model(name)


def warn_of_random_weights(name: str) -> None:
    """Say that a model of the command line has not been trained, where its name is all that there is of it."""
    if is_untrained(name):
        sentence = f"model={name} has random weights, it has not been trained: what it finds means nothing; name a weights file or one of"
        warnings.warn(PellucidWarning(f"{sentence} {', '.join(shipped_names())}"), stacklevel=3)


def place_of(network: Network, config: ValConfig | PredictConfig) -> torch.device:
    """Where a network computes; UsageError for settings that an exported file has decided already."""
    if not isinstance(network, Exported):
        return pick_device(config.device)
    network.accept(config)
    return pick_device("cpu")


def path_of(network: Network, config: PredictConfig) -> str:
    """The decode path that was asked for, else the one of an exported file, else e2e."""
    return config.path or (network.facts.path if isinstance(network, Exported) else PATHS[0])


def validate(config: ValConfig, opened: tuple[Network, Card] | None = None) -> tuple[Scores, Path]:
    """Score a model on a split and write the report; the scores and the run folder."""
    from .data.module import DataModule
    from .data.readers import open_dataset
    from .evaluate import evaluate, evaluate_tiles
    from .report import report_scoring
    from .train.report import clear_scores, write_scores
    from .train.run import worker_count

    required(config, "model", "data")
    detector, card = opened or open_network(config.model)
    if opened is None:
        warn_of_random_weights(config.model)
    device = place_of(detector, config)
    precision = pick_precision(config.precision, device)
    task = make_task(card)
    dataset = open_dataset(config.data, needs=task.needs, splits=(config.split,), strict=config.strict)
    dataset = dataset.single_class() if config.single_cls else dataset
    loading = {"imgsz": config.imgsz or card.imgsz, "batch": config.batch, "workers": worker_count(config.workers)}
    data = DataModule(dataset, task, **loading)
    name = config.name or "val"
    if config.exist_ok and (Path(config.project) / card.task / name / "weights").is_dir():
        raise UsageError(f"name: expected another folder than that of a training, got {name}; choose another, or leave exist_ok out")
    folder = new_folder(config.project, card.task, name, config.exist_ok)
    counted = {key: getattr(config, key) for key in ("conf", "iou", "max_det", "single_cls")}
    counted |= {"device": device, "precision": precision}
    if isinstance(detector, Exported):
        counted |= {"paths": (detector.facts.path,), "weights": f"exported {'float16' if detector.facts.half else 'float32'}"}
    index = data.index(config.split)
    with unless_empty(folder), closing(data):
        if config.tile is None or config.overlap is None:  # both or none, by their rules
            scores = evaluate(detector.to(device), data.eval_loader(config.split), index, task, card.names, **counted)
        else:
            scores = evaluate_tiles(detector.to(device), data, config.split, task, card.names, config.tile, config.overlap, **counted)
    clear_scores(folder)
    write_args(folder, config)
    write_json(folder / "env.json", environment())
    write_scores(folder, scores, index, config.plots, config.save_json)
    if config.report:
        report_scoring(folder, scores, config, card, index)
    return scores, folder


def predict(
    config: PredictConfig, source: Any, opened: tuple[Network, Card] | None = None, color: str = "rgb", unread: Unread | None = None
) -> Iterator[Result]:
    """Results one by one; nothing is written. `unread(path, error)` is told of each picture that cannot be read."""
    from .predict.run import predict as find

    detector, card = opened or open_network(config.model)
    device = place_of(detector, config)
    names = ("conf", "iou", "max_det", "classes", "agnostic_nms", "batch", "tile", "overlap", "vid_stride")
    settings = {name: getattr(config, name) for name in names}
    settings |= {"precision": pick_precision("16" if config.half else config.precision, device), "color": color, "unread": unread}
    settings["path"] = path_of(detector, config)
    return find(detector.to(device), card, source, imgsz=config.imgsz or card.imgsz, device=device, **settings)


def bench(config: BenchConfig) -> dict[str, Any]:
    """Speed of prediction: the settings, the machine, and the figures of `predict.bench.measure`."""
    import torch

    from .predict.bench import a_picture, measure

    required(config, "model")
    picture = Path(config.source) if config.source else a_picture()
    opened = open_network(config.model)
    same = ("model", "imgsz", "batch", "path", "conf", "device", "precision")
    looking = PredictConfig(**{name: getattr(config, name) for name in same})
    device = place_of(opened[0], looking)
    figures = measure(lambda source: predict(looking, source, opened), picture, config.batch, config.repeats)
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    given = {"model": config.model, "task": opened[1].task, "imgsz": config.imgsz or opened[1].imgsz, "batch": config.batch}
    how = {"precision": pick_precision(config.precision, device), "path": path_of(opened[0], looking), "repeats": config.repeats}
    place = {"device": gpu or "cpu", "threads": torch.get_num_threads(), "torch": torch.__version__, "picture": str(picture)}
    return {**given, **how, **place, **figures}


def info(config: InfoConfig) -> dict[str, Any]:
    """Size and cost of the model that `config` names."""
    required(config, "model")
    names = tuple(f"class{number}" for number in range(config.nc or 0))
    detector, card = open_network(config.model) if is_exported(config.model) else open_model(config.model, names=names)
    if config.nc is not None and config.nc != card.nc:
        raise UsageError(f"nc: expected {card.nc}, the number of classes in {config.model}, got {config.nc}; leave it out")
    return describe(config.model, detector, card, config.imgsz)


def describe(name: str, detector: Network, card: Card, imgsz: int | None = None) -> dict[str, Any]:
    """params counts the model as it is trained; params_fused and gflops (2 x multiply-adds) the end-to-end path alone.

    Of an exported file, what was decided when it was written.
    """
    if isinstance(detector, Exported):
        if imgsz not in (None, card.imgsz):
            raise UsageError(f"imgsz: expected {card.imgsz}, as {name} was exported, got {imgsz}; leave it out")
        return detector.describe()
    imgsz = imgsz or card.imgsz
    fused = detector.fuse()
    return {
        "model": name,
        "task": card.task,
        "scale": card.scale,
        "nc": len(card.names),
        "imgsz": imgsz,
        "params": count_parameters(detector),
        "params_fused": count_parameters(fused),
        "gflops": round(count_flops(fused, imgsz), 2),
    }


def predict_files(config: PredictConfig, unread: Unread | None = None) -> tuple[Path, Iterator[Result]]:
    """The run folder, and the results of `config.source` one by one, each written to the folder as `config` asks.

    `unread(path, error)` is told of each picture that cannot be read.
    """
    from .predict.files import Kept, keep_apart, write_results
    from .predict.sources import named_paths

    required(config, "model", "source")
    opened = open_network(config.model)
    warn_of_random_weights(config.model)
    if config.exist_ok:
        keep_apart(named_paths(config.source), Path(config.project) / opened[1].task / (config.name or "predict"))
    results = predict(config, config.source, opened, unread=unread)
    first = list(islice(results, 1))  # a source of which nothing can be read ends here, and leaves no folder
    folder = new_folder(config.project, opened[1].task, config.name or "predict", config.exist_ok)
    kept = Kept(**{field.name: getattr(config, field.name) for field in fields(Kept)})
    return folder, write_results(chain(first, results), folder, kept)

"""Training from the first line to the last: settle the settings, open data and model, train, score the file that was written."""

from __future__ import annotations

import gc
import inspect
import logging
import math
import os
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import closing, contextmanager
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn

from ..augment.presets import PRESETS, AugmentConfig
from ..config import TrainConfig, merged, required
from ..data.index import DataSet
from ..data.module import DataModule
from ..data.readers import open_dataset
from ..errors import CheckpointError, PellucidError, UsageError
from ..evaluate.run import Scores, evaluate
from ..models.build import Detector
from ..report import report_training
from ..rules import did_you_mean
from ..tasks import TASKS
from ..zoo import Card, create, load_weights, make_task, open_model, save_weights, shipped_names
from .callbacks import EpochEnd, Interrupt, NonFinite, Previews
from .capture import check_device
from .device import pick_devices, pick_precision
from .folder import environment, find_run, new_folder, read_args, whole_file, write_args, write_json
from .journal import Journal
from .launch import launch
from .module import DetectorModule, SummedDDP
from .preflight import check_batches, check_room, summary
from .progress import Report, Throughput
from .ranks import gathered
from .report import plot_curves, plot_labels, write_scores
from .start import take_weights

FREE_ON_RESUME = {"resume", "device", "workers", "cache", "plots", "report", "json"}  # settings that do not change the figures


@dataclass(frozen=True)
class TrainResult:
    """Where the run is and how good it became."""

    run_dir: Path
    metric: str  # which figure chose the best epoch
    value: float  # nan where nothing could be scored
    epoch: int  # whose weights were kept, counted from 1: the best, or the latest where nothing was found; 0 before the first score
    images_per_s: float  # training batches alone; nan where too few
    wall_s: float
    interrupted: bool = False
    scores: Scores | None = None  # of weights/best.safetensors, both paths; None if interrupted

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, None for figures that do not exist."""
        best = {"metric": self.metric, "value": _known(self.value), "epoch": self.epoch}
        figures = {"images_per_s": _known(self.images_per_s), "wall_s": round(self.wall_s, 2), "interrupted": self.interrupted}
        return {"run_dir": str(self.run_dir), "best": best, **figures, "scores": self.scores.to_dict() if self.scores else None}


def train(config: TrainConfig) -> TrainResult:
    """Train as `config` says; UsageError, DataError or their kin, in one sentence, where that cannot be done."""
    began = time.perf_counter()
    config = resume_config(_given(config)) if config.resume else config
    required(config, "model", "data")
    devices = pick_devices(config.device)
    device = devices[0]
    check_device(config.capture, device)
    share_cores(device, worker_count(config.workers))
    precision = pick_precision(config.precision, device)
    dataset, detector, card = open_all(config, tell=not config.resume)
    task = make_task(card)
    data = TrainingData(dataset, task, **loading_of(config))
    check_batches(config, len(data.index("train")), len(devices))
    module = DetectorModule(detector, task, config, card)

    folder = find_run(config.resume)[0] if config.resume else new_folder(config.project, card.task, config.name or "train", config.exist_ok)
    journal = Journal(folder, config.epochs, f"e2e/{task.metrics[0]}/ap")
    checkpoint = restore(journal, config, data) if config.resume else None
    write_args(folder, config)
    write_json(folder / "env.json", environment())
    announce(config, data, folder, detector, device, precision)

    with closing(data):
        score = partial(scored, data=data, card=card, device=device, precision=precision, max_det=config.max_det)
        if len(devices) > 1:
            journal.interrupted = launch(folder, len(devices))
            speed = journal.reread().get("images_per_s", math.nan)
        else:
            speed = fit(config, module, data, journal, score, checkpoint).images_per_s
        result = TrainResult(folder, journal.metric, journal.best_value, journal.best_epoch, speed, 0.0, journal.interrupted)
        if config.plots:
            plot_curves(folder, journal.rows)
        if not journal.interrupted:
            result = replace(result, scores=release(journal, config, data, score))
    result = replace(result, wall_s=time.perf_counter() - began)
    if config.report:
        report_training(result, config, card, {name: data.index(name) for name in ("train", "val")})
    return result


def train_rank(folder: Path, rank: int) -> bool:
    """What one of several processes does in the run that `folder` describes; whether it was interrupted."""
    config = merged(TrainConfig(), read_args(folder))
    device = pick_devices(config.device)[rank]
    share_cores(device, worker_count(config.workers))
    dataset, detector, card = open_all(config, tell=False)
    task = make_task(card)
    data = TrainingData(dataset, task, **loading_of(config))
    journal = Journal(folder, config.epochs, f"e2e/{task.metrics[0]}/ap", writes=rank == 0)
    checkpoint = restore(journal, config, data) if config.resume else None
    precision = pick_precision(config.precision, device)
    score = partial(scored, data=data, card=card, device=device, precision=precision, max_det=config.max_det, gather=gathered)
    with closing(data):
        fit(config, DetectorModule(detector, task, config, card), data, journal, score, checkpoint)
    return journal.interrupted


def scored(model: nn.Module, data: TrainingData, card: Card, **settings: Any) -> Scores:
    """Scores on the validation split."""
    return evaluate(model, data.scoring_loader(), data.index("val"), data.task, card.names, **settings)


def resume_config(given: Mapping[str, Any]) -> TrainConfig:
    """The settings of the run named by `given["resume"]`, with the `given` ones that may change; UsageError for any other change."""
    folder, _ = find_run(given["resume"])
    saved = merged(TrainConfig(), read_args(folder))
    changes = {key: value for key, value in given.items() if key not in FREE_ON_RESUME and getattr(saved, key) != value}
    if changes:
        key, value = next(iter(changes.items()))
        raise UsageError(
            f"{key}: expected {getattr(saved, key)!r} as in the run to resume, got {value!r}; leave it out, or start a new run"
        )
    return merged(saved, dict(given))


def open_all(config: TrainConfig, tell: bool = True) -> tuple[DataSet, Detector, Card]:
    """The data, and a detector for its classes; what is not taken from a weights file is drawn from the seed alone, which `tell` says."""
    given, card = open_model(config.model)
    given_names = card.names
    dataset = open_dataset(config.data, needs=make_task(card).needs, splits=("train", "val"), strict=config.strict)
    dataset = dataset.single_class() if config.single_cls else dataset
    classes: dict[str, Any] = {"names": dataset.names, "category_ids": dataset.category_ids}
    card = replace(card, **classes, imgsz=config.imgsz, settings=asdict(config), task_args=task_args_of(config, card, dataset))
    detector = create(card, config.seed)
    if config.model in shipped_names() or Path(config.model).suffix:
        take_weights(detector, given, card.names, given_names, tell)
    return dataset, detector, card


def task_args_of(config: TrainConfig, card: Card, dataset: DataSet) -> dict[str, Any]:
    """The arguments of the card's task: those in its card, what the data state, and the settings; UsageError for one it does not know."""
    known = inspect.signature(TASKS[card.task]).parameters
    stated = {name: value for name, value in dataset.task_args().items() if name in known}
    settings = {name: getattr(config, name) for name in _task_settings() if getattr(config, name) is not None}
    foreign = [name for name in settings if name not in known and settings[name] != getattr(TrainConfig(), name)]
    if foreign:
        raise UsageError(f"{foreign[0]}: expected a setting of the task {card.task}, got one that it does not have; leave it out")
    return {**card.task_args, **stated, **{name: value for name, value in settings.items() if name in known}}


def _task_settings() -> set[str]:
    """The settings that are arguments of some task."""
    arguments = {name for make in TASKS.values() for name in inspect.signature(make).parameters}
    return arguments & {field.name for field in fields(TrainConfig)}


def loading_of(config: TrainConfig) -> dict[str, Any]:
    """The fields of `data.module.Loading`."""
    close = config.epochs - config.close_mosaic if config.close_mosaic else None
    same = {name: getattr(config, name) for name in ("imgsz", "batch", "cache", "seed", "fraction")}
    return {
        **same,
        "workers": worker_count(config.workers),
        "augment": augment_of(config),
        "close_mosaic_epoch": close,
        "tell_pastes": config.copy_paste is not None,
    }


def augment_of(config: TrainConfig) -> AugmentConfig:
    """The named preset with the user's own values."""
    if config.preset not in PRESETS:
        raise UsageError(f"preset: expected one of {', '.join(PRESETS)}, got {config.preset!r}; choose one of them")
    return replace(PRESETS[config.preset], **config.overrides())


def worker_count(asked: int | None) -> int:
    """One process a core that this process may use, at most 8, unless a number is given."""
    return min(8, core_count()) if asked is None else asked


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_cores(device: torch.device, workers: int) -> None:
    """On a CPU leave the workers a core each: threads that wait for a core made training ten times slower."""
    if device.type == "cpu":
        torch.set_num_threads(min(torch.get_num_threads(), max(1, core_count() - workers)))


def restore(journal: Journal, config: TrainConfig, data: TrainingData) -> Path:
    """Bring journal and loader to where the checkpoint was written; its path."""
    _, path = find_run(config.resume)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        card = Card.from_json(content["pellucid"]["card"])
        journal.restore(content["run"])
        journal.share(1 + config.device.count(","))
    except PellucidError:
        raise
    except Exception as error:
        raise CheckpointError(f"{path}: expected a checkpoint of a training run, got {type(error).__name__}; take another run") from error
    if card.names != data.dataset.names:
        had, has = (", ".join(names[:5]) for names in (card.names, data.dataset.names))
        near = did_you_mean(data.dataset.names, card.names)
        raise UsageError(f"resume: expected the classes of the run ({had}), got others in {config.data} ({has}); start a new run{near}")
    if journal.epoch >= config.epochs or journal.out_of_patience(config.patience):
        done = f"all {config.epochs}" if journal.epoch >= config.epochs else f"{journal.epoch} and stopped early"
        raise UsageError(f"resume: expected a run with epochs left, got one that has done {done}; start a new run from its best weights")
    data.position = (journal.epoch, journal.batch)
    return path


def announce(config: TrainConfig, data: TrainingData, folder: Path, detector: nn.Module, device: torch.device, precision: str) -> None:
    """Tell what is about to happen, and warn where there is too little room for it."""
    train = data.index("train")
    parameters = sum(p.numel() for p in detector.parameters())
    check_room(config, data.loading.workers, train, 2, folder, parameters)
    threads = torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {threads} thread{'s' * (threads != 1)}"
    lines = [*summary(data), f"{config.model}: {parameters:,} parameters, {name}, precision {precision}, run folder {folder}"]
    print("\n".join(lines), file=sys.stderr)
    if config.plots:
        plot_labels(folder, train)


def fit(
    config: TrainConfig, module: LightningModule, data: TrainingData, journal: Journal, score: Any, checkpoint: Path | None
) -> Throughput:
    """Run the epochs that are left."""
    throughput = Throughput()
    callbacks: list[Callback] = [
        throughput,
        NonFinite(journal),
        EpochEnd(journal, lambda model: _flat(score(model, paths=("e2e",), curves=False)), throughput, config.val_every, config.patience),
        Interrupt(journal, config.accumulation),
        *([Report(journal, throughput, journal.epoch)] if journal.writes else []),
    ]
    if config.plots and not checkpoint and journal.writes:
        callbacks.append(Previews(journal.folder, data.dataset.names))
    with quiet_lightning():
        trainer = make_trainer(config, callbacks, journal.folder)
        place(trainer, journal)
        gc.freeze()  # what lives to the end is not searched for garbage in every epoch
        try:
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        finally:
            gc.unfreeze()
    return throughput


def make_trainer(config: TrainConfig, callbacks: list[Callback], folder: Path) -> Trainer:
    """Lightning's loop, bare: validation, checkpoints, logging and precision are ours."""
    devices = pick_devices(config.device)
    on_gpu = devices[0].type == "cuda"
    return Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=[device.index for device in devices] if on_gpu else len(devices),
        strategy=SummedDDP(cluster_environment=LightningEnvironment()) if len(devices) > 1 else "auto",
        max_epochs=config.epochs,
        callbacks=callbacks,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        use_distributed_sampler=False,
    )


def place(trainer: Trainer, journal: Journal) -> None:
    """Tell Lightning's counters where training goes on: the epoch, and the batches of it that are done."""
    progress: Any = trainer.fit_loop.epoch_progress.current
    progress.ready = progress.started = progress.processed = progress.completed = journal.epoch
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    batches.ready = batches.started = batches.processed = batches.completed = journal.batch
    trainer.fit_loop.epoch_loop.restarting = journal.batch > 0


def release(journal: Journal, config: TrainConfig, data: TrainingData, score: Any) -> Scores:
    """Write best.safetensors, read it back, and score what was read by both paths."""
    if not journal.best.is_file():  # a run that was resumed elsewhere, without it
        with whole_file(journal.best) as part:
            part.write_bytes(journal.last.read_bytes())
    detector, card = load_weights(journal.best)
    path = journal.folder / "weights" / "best.safetensors"
    with whole_file(path) as part:
        save_weights(part, detector.state_dict(), card)
        part.chmod(journal.best.stat().st_mode)  # readable like the others, whatever the writer's own rule
    detector, _ = load_weights(path)
    scores = score(detector.to(pick_devices(config.device)[0]), weights="EMA")
    write_scores(journal.folder, scores, data.index("val"), config.plots)
    return scores


class TrainingData(DataModule):
    """The loaders of a run, which may begin in the middle of an epoch."""

    position = (0, 0)  # epoch, batches of it that are done
    _scoring: Any = None

    def train_dataloader(self) -> Any:
        loader = super().train_dataloader()
        loader.load_state_dict({"epoch": self.position[0], "batches": self.position[1]})
        return loader

    def scoring_loader(self) -> Any:
        """The validation loader, made once, so that its workers stay."""
        if self._scoring is None:
            self._scoring = self.val_dataloader()
        return self._scoring


@contextmanager
def quiet_lightning():
    """Without Lightning's remarks on settings that are chosen on purpose; the user's own warnings pass."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric|torch.utils.data")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _given(config: TrainConfig) -> dict[str, Any]:
    """The settings that differ from the defaults."""
    defaults = {field.name: field.default for field in fields(config) if field.default is not MISSING}
    return {name: value for name, value in asdict(config).items() if value != defaults.get(name)}


def _flat(scores: Scores) -> dict[str, float]:
    return {f"{path}/{name}": value for path, part in scores.paths.items() for name, value in part.metrics.items()}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""What happens around the steps: scoring, saving, stopping. Nothing here waits for the device inside an epoch."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer
from torch import nn

from ..errors import PellucidError
from .folder import whole_file
from .journal import Journal
from .progress import Throughput
from .report import plot_batch

AGREE_EVERY = 8  # windows after which several processes ask each other whether one of them has been told to stop
SKIP_LIMIT = 100  # non-finite steps after which a run is stopped
PREVIEWS = 3  # training batches that are drawn
SKIP_CHECK = 50  # steps between looks at their number, each of which waits for the device


def save(trainer: Trainer, path: Path) -> None:
    """Write a checkpoint that appears whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    with whole_file(path) if trainer.is_global_zero else nullcontext(path) as part:  # all ranks come here, one writes
        trainer.save_checkpoint(part, weights_only=False)


class EpochEnd(Callback):
    """Scores the averaged weights, writes the row, saves last and best, and stops a run that no longer gets better.

    `score(model)` -> {"e2e/box/ap": ...}, called after every `val_every`-th epoch and after the last.
    """

    def __init__(
        self, journal: Journal, score: Callable[[nn.Module], Mapping[str, float]], throughput: Throughput, val_every: int, patience: int
    ):
        self.journal = journal
        self.score = score
        self.throughput = throughput
        self.val_every = val_every
        self.patience = patience
        self._since = time.perf_counter()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._since = time.perf_counter()
        if not self.journal.batch:
            pl_module.step.clear_losses()  # a checkpoint written at an epoch's end still holds those of that epoch

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        if self.journal.interrupted:
            return
        pl_module.step.agree()
        number = trainer.current_epoch + 1
        row = {"epoch": number, **self._training_figures(trainer, pl_module)}
        if number % self.val_every == 0 or number == self.journal.epochs:
            row |= self.score(pl_module.ema.model)
        row["seconds"] = time.perf_counter() - self._since
        better = self.journal.end_epoch(row)
        save(trainer, self.journal.last)
        if better and trainer.is_global_zero:
            with whole_file(self.journal.best) as part:
                shutil.copyfile(self.journal.last, part)
        self._stop_early(trainer)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """The journal takes the place of Lightning's loop counters."""
        checkpoint.pop("loops", None)
        checkpoint["run"] = self.journal.state()

    def _training_figures(self, trainer: Trainer, module: Any) -> dict[str, float]:
        images, seconds, waited = self.throughput.current()
        losses = {f"train/{name}": float(value) for name, value in module.last_losses.items()}
        rate = {"images_per_s": images / seconds if images else float("nan"), "wait": waited / max(seconds, 1e-9)}
        return {**losses, "lr": float(module.step.updater.rate), **rate, "skipped": int(module.skipped)}

    def _stop_early(self, trainer: Trainer) -> None:
        journal = self.journal
        if journal.out_of_patience(self.patience) and journal.epoch < journal.epochs:
            journal.stopped_early = True
            trainer.should_stop = True


class Interrupt(Callback):
    """On Ctrl-C or SIGTERM: finish the open accumulation window, save last.ckpt, stop. A second signal stops at once, unsaved."""

    def __init__(self, journal: Journal, accumulate: int) -> None:
        self.journal = journal
        self.accumulate = accumulate
        self.asked = False
        self._handlers: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.journal.batch = batch_idx + 1
        last = self.journal.batch == trainer.num_training_batches
        windows = 1 if trainer.world_size == 1 else AGREE_EVERY
        if (last or self.journal.batch % (self.accumulate * windows) == 0) and self._agreed(trainer):
            self._stop(trainer)
            pl_module.step.agree()
            save(trainer, self.journal.last)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """A signal that came while the epoch was scored: everything has been saved already."""
        if self._agreed(trainer):
            self._stop(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._give_back()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._give_back()

    def _agreed(self, trainer: Trainer) -> bool:
        """Whether any process has been asked to stop: all stop at the same batch."""
        return self.asked if trainer.world_size == 1 else trainer.strategy.reduce_boolean_decision(self.asked, all=False)

    def _stop(self, trainer: Trainer) -> None:
        self.journal.interrupted = True
        trainer.should_stop = True

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def _give_back(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}


class NonFinite(Callback):
    """Stops a run whose steps keep giving infinite or undefined gradients; the module has skipped and counted them."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (batch_idx + 1) % SKIP_CHECK == 0:
            self._look(pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._look(pl_module)

    def _look(self, module: Any) -> None:
        skipped = int(module.skipped)
        if skipped < SKIP_LIMIT:
            return
        losses = {name: float(value) for name, value in module.last_losses.items()}
        raise PellucidError(
            f"expected finite gradients, got {skipped} non-finite steps by epoch {self.journal.epoch + 1} (losses {losses}); "
            f"lower lr0 or take precision=32, then resume={self.journal.folder}"
        )


class Previews(Callback):
    """Draws the first training batches, after the epoch, so that no step waits for it."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder = folder
        self.names = names
        self._kept: list[Any] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == 0 and batch_idx < PREVIEWS:
            self._kept.append(batch)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        for number, batch in enumerate(self._kept):
            plot_batch(self.folder / f"train_batch{number}.jpg", batch, self.names)
        self._kept = []

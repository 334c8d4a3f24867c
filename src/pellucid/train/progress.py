"""What a user sees while training runs: throughput that is measured honestly, a bar on terminals, plain lines elsewhere; all on stderr."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from .journal import Journal

BAR_TEXT = "{task.description}  {task.completed}/{task.total}  {task.fields[words]}"
REFRESH_S = 0.25  # seconds between redraws of the bar
QUIET_S = 30.0  # seconds between plain lines within an epoch
LOSS_STEPS = 50  # steps between reads of the losses, each of which waits for the device


class Throughput(Callback):
    """Images a second over training batches alone: without those up to the first update (start-up) and without validation."""

    def __init__(self) -> None:
        self.images, self.seconds, self.waited = 0, 0.0, 0.0  # of the finished epochs
        self._started = False
        self._restored = 0  # updates done before this start
        self._mark: tuple[int, float, float] = (0, 0.0, 0.0)  # images, time, waited at the start of what is being measured
        self._images = 0
        self._loader: Any = None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._loader = trainer.train_dataloader
        self._restored = self._restored if self._started else pl_module.optimizer_steps
        self._set_mark()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._images += len(batch) * trainer.world_size
        if not self._started and pl_module.optimizer_steps > self._restored:
            self._started = True
            wait_for(pl_module.device)
            self._set_mark()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        wait_for(pl_module.device)
        if not self._started:
            self._set_mark()
        images, seconds, waited = self.current()
        self.images, self.seconds, self.waited = self.images + images, self.seconds + seconds, self.waited + waited

    def current(self) -> tuple[int, float, float]:
        """Images, seconds, and seconds of waiting in this epoch so far."""
        images, since, waited = self._mark
        return self._images - images, time.perf_counter() - since, self._waited() - waited

    def _waited(self) -> float:
        """Seconds that the loop has waited for the next batch."""
        return getattr(self._loader, "waited", 0.0)

    @property
    def images_per_s(self) -> float:
        """Over all epochs; nan where nothing was left to measure."""
        return self.images / self.seconds if self.images else math.nan

    def _set_mark(self) -> None:
        self._mark = (self._images, time.perf_counter(), self._waited())


class Report(Callback):
    """Draws a bar on a terminal, prints lines elsewhere. Touches the device only every `LOSS_STEPS` steps."""

    def __init__(self, journal: Journal, throughput: Throughput, start_epoch: int) -> None:
        self.journal = journal
        self.throughput = throughput
        self.console = Console(file=sys.stderr, highlight=False)
        self.bar: Progress | None = None
        self._first = start_epoch
        self._began = self._drawn = time.perf_counter()
        self._losses = ""

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._began = time.perf_counter()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._drawn, self._losses = time.perf_counter(), ""
        if self.console.is_terminal:
            columns = (BarColumn(16), TextColumn(BAR_TEXT, table_column=Column(no_wrap=True, overflow="ellipsis")))
            self.bar = Progress(*columns, console=self.console, auto_refresh=False, transient=True)
            self.bar.add_task(self._epoch(trainer.current_epoch), total=int(trainer.num_training_batches), words="")
            self.bar.start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % LOSS_STEPS == 0:
            self._losses = words_of(pl_module.last_losses)
        now = time.perf_counter()
        if now - self._drawn < (REFRESH_S if self.bar else QUIET_S):
            return
        self._drawn = now
        words = f"{self._rate()}  {self._left(trainer, batch_idx + 1)}  {self._losses}"
        if self.bar:
            self.bar.update(self.bar.task_ids[0], completed=batch_idx + 1, words=words, refresh=True)
        else:
            self.console.print(
                f"{self._epoch(trainer.current_epoch)}  {batch_idx + 1}/{int(trainer.num_training_batches)}  {words}", soft_wrap=True
            )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """One line that stays; called after the epoch has been scored and saved."""
        self._stop_bar()
        if self.journal.interrupted:
            return
        row = self.journal.rows[-1]
        scores = {key.removeprefix("e2e/"): row[key] for key in row if key in ("e2e/box/ap", "e2e/box/ap50") or key == self.journal.metric}
        losses = {key.removeprefix("train/"): value for key, value in row.items() if key.startswith("train/")}
        parts = [self._epoch(trainer.current_epoch), words_of(losses), words_of(scores), self._rate_of(row), self._left(trainer, 0, done=1)]
        self.console.print("  ".join(part for part in parts if part), soft_wrap=True)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._stop_bar()

    def _stop_bar(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None

    def _epoch(self, epoch: int) -> str:
        return f"epoch {epoch + 1:>{len(str(self.journal.epochs))}}/{self.journal.epochs}"

    def _rate(self) -> str:
        images, seconds, waited = self.throughput.current()
        return self._rate_of({"images_per_s": images / seconds if images else math.nan, "wait": waited / max(seconds, 1e-9)})

    def _rate_of(self, row: Mapping[str, float]) -> str:
        rate = row.get("images_per_s", math.nan)
        words = f"{rate:.0f} img/s  waits {row.get('wait', 0.0):.0%}" if math.isfinite(rate) else ""
        return words + (f"  {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if torch.cuda.is_initialized() else "")

    def _left(self, trainer: Trainer, batches: int, done: int = 0) -> str:
        """Time left, from the pace of this call (validation included)."""
        total = max(int(trainer.num_training_batches), 1)
        passed = trainer.current_epoch - self._first + done + batches / total
        ahead = self.journal.epochs - trainer.current_epoch - done - batches / total
        return f"{duration((time.perf_counter() - self._began) / passed * ahead)} left" if passed > 0 and ahead > 0 else ""


def words_of(values: Mapping[str, Any]) -> str:
    """`box 1.23  cls 0.456`; a tensor is read, which waits for its device."""
    return "  ".join(
        f"{name} {float(value):.4g}" if abs(float(value)) >= 1 else f"{name} {float(value):.4f}" for name, value in values.items()
    )


def duration(seconds: float) -> str:
    """h:mm:ss, or m:ss below an hour."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def wait_for(device: torch.device) -> None:
    """Let the device finish what it was given, so that a clock read next is honest."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)

"""One training step, from a batch on the device to the averaged weights, with no host synchronisation and no framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ..config import TrainConfig
from ..models.blocks import statistics_held
from ..models.build import Detector
from ..numerics.casts import CastConvolutions
from ..optim.ema import Ema
from ..optim.gradients import FlatGradients
from ..optim.scaler import LossScale
from ..tasks import Task
from ..types import Batch, Output, Targets
from .capture import Captured
from .criterion import Both, Criterion, combine
from .optimizer import Updater, make_updater
from .ranks import add_up, average, of_all, world
from .window import Window, summed

DTYPES = {"32": torch.float32, "16": torch.float16, "bf16": torch.bfloat16}


class TrainStep:
    """Forward, objective and backward of one part of a window; and the update that ends the window.

    `precision` is "32", "16" or "bf16"; `iterations` counts the batches of the whole run. The model that counts is `ema.model`.
    """

    def __init__(self, detector: Detector, task: Task, config: TrainConfig, nc: int, precision: str, iterations: int) -> None:
        self.detector, self.config, self.precision = detector, config, precision
        self.network = detector if precision == "32" else CastConvolutions(detector, DTYPES[precision])
        self.criterion = Criterion(task, config.cls)
        self.names = self.criterion.names  # of the losses
        names, params = zip(*((n, p) for n, p in detector.named_parameters() if p.requires_grad), strict=True)
        self.device = params[0].device
        self.updater: Updater = make_updater(detector, config, nc, iterations)
        self.gradients = FlatGradients(params)
        several = not self.criterion.one_divisor  # divisors that are known when all parts have been seen
        self.looks = several and config.accumulation > 1
        self.gathers = several and world() > 1
        self.window = Window(config.accumulation, names, known=self.gathers or self.looks)
        self._held: list[Batch] = []  # parts of a window that is not yet whole
        self.ema = Ema(detector, config.ema_decay, config.ema_ramp)
        self.scaler = LossScale(self.device, enabled=precision == "16")
        self.share = torch.full((), config.share_start, device=self.device)  # weight of the one-to-many branch
        self.skipped = torch.zeros((), device=self.device)  # steps with infinities
        self.factor, self.loss = (torch.ones((), device=self.device) for _ in range(2))  # the last loss and the factor in it
        self._losses, self._parts = torch.zeros(len(self.names), device=self.device), 0
        self.captured = Captured(self, config.capture)
        if self.captured.whole:
            self.updater.replaced_by(self.captured.update)

    def losses_of(self, batch: Batch, last: bool = False) -> Iterator[Tensor]:
        """The losses to differentiate now that `batch` has come; `last` closes a window early.

        None while a window must first be whole, and none where the whole step is captured: its gradients are then already taken up.
        """
        for part, images, counts in self._ready(batch, last):
            if self.captured.whole:
                own = self.captured.learn(part, images, counts)
                self._parts += 1
                self.window.note(own, len(part))
            else:
                yield self._loss_of(part, images, counts)

    def _ready(self, batch: Batch, last: bool) -> Iterator[tuple[Batch, int, Both | None]]:
        """Parts to learn from, each with the images of what it is divided by, and those counts; None: its own."""
        if not self.looks:
            yield (batch, *self._measure(batch))
            return
        self._held.append(batch)
        if len(self._held) == self.window.size or last:
            parts, self._held = self._held, []
            counts = self.look(parts)
            for part in parts:
                yield part, sum(len(each) for each in parts) * world(), counts

    def _measure(self, batch: Batch) -> tuple[int, Both | None]:
        if self.gathers:
            return len(batch) * world(), self.look([batch]) if self.captured.objective else None
        return self.window.first or len(batch), self.window.reference

    def forward(self, batch: Batch) -> Tensor:
        """The loss of the next part of the window, to be differentiated."""
        return self._loss_of(batch, *self._measure(batch))

    def _loss_of(self, batch: Batch, images: int, counts: Both | None) -> Tensor:
        loss, own = self.captured.loss(self.captured.network(batch.images), batch.targets, images, counts)
        self._parts += 1
        self.window.note(own, len(batch))
        return loss

    def look_at(self, images: Tensor) -> Output:
        """The network's output under this run's precision."""
        with self.autocast():
            output: Output = self.network(images)
        return output

    def score(self, output: Output, targets: Targets, images: int, counts: Both | None) -> tuple[Tensor, Both]:
        """The scaled loss of a part of `images` in all, and its counts; `counts` replace them as divisors. Losses are noted."""
        many, one = self.criterion(output, targets)
        items = one.items()
        self._losses += torch.stack([items[name] for name in self.names])
        own = many.counts, one.counts
        if counts is None and self.gathers:
            counts = of_all(own)
        self.factor.copy_(self.scaler.of_sum(images))
        loss = combine(many, one, self.share, images, counts) * self.factor
        self.loss.copy_(loss.detach())
        return loss, own

    @torch.no_grad()
    def look(self, parts: Sequence[Batch]) -> Both:
        """What the losses of a window are divided by; weights and BatchNorm statistics stay as they are."""
        with statistics_held(self.detector), self.autocast():
            seen = [self.criterion(self.detector(part.images), part.targets) for part in parts]
        return of_all((summed([many.counts for many, _ in seen]), summed([one.counts for _, one in seen])))

    def collect(self) -> None:
        """Take up the gradient that backward left."""
        self.gradients.collect()

    def prepare(self) -> None:
        """Before the optimizer's step: the gradient of the large batch, and the rates of this step."""
        self.window.correct(self.gradients)
        add_up(self.gradients.flat.vector)
        self.updater.set_rates()
        if not self.captured.whole:
            self._check()

    def _check(self) -> None:
        """Unscale, check and clip the gradient."""
        _, found_inf = self.gradients.finish(self.config.clip_norm, self.factor)
        self.updater.found_inf.copy_(found_inf)

    def conclude(self) -> None:
        """After it: average, adapt the loss scale, and start a new window."""
        if not self.captured.whole:
            self._average()
        self.window.reset()

    def _average(self) -> None:
        self.ema.update(self.detector)
        self.scaler.update(self.updater.found_inf)
        self.skipped += self.updater.found_inf
        self.gradients.release()

    def update(self) -> None:
        """All of an update that stays on the device."""
        self._check()
        self.updater.advance()
        self._average()

    def agree(self) -> None:
        """Average over all ranks what each has from its own pictures: BatchNorm statistics, of the model and of its average."""
        average([value for model in (self.detector, self.ema.model) for value in model.buffers() if value.is_floating_point()])

    def __call__(self, batch: Batch, last: bool = True) -> None:
        """Learn from a part of a window without a framework, and update where it is the `last` or the window is full."""
        for loss in self.losses_of(batch, last):
            loss.backward()
            self.collect()
        if last or self.window.full:
            self.prepare()
            self.updater.optimizer.step()
            self.conclude()

    def autocast(self) -> AbstractContextManager:
        """The arithmetic of the forward pass."""
        return torch.autocast(self.device.type, DTYPES[self.precision], enabled=self.precision != "32")

    def losses(self) -> dict[str, Tensor]:
        """Losses of the one-to-one branch, averaged since `clear_losses`."""
        return dict(zip(self.names, self._losses / max(self._parts, 1), strict=True))

    def clear_losses(self) -> None:
        self._losses.zero_()
        self._parts = 0

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs beside weights and optimizer."""
        parts = {"ema": self.ema.state_dict(), "scaler": self.scaler.state_dict(), "skipped": self.skipped}
        return {**parts, "steps": self.updater.steps, "losses": self._losses, "parts": self._parts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ema.load_state_dict(state["ema"])
        self.scaler.load_state_dict(state["scaler"])
        self.skipped.copy_(state["skipped"])
        self.updater.steps = state["steps"]
        self._losses.copy_(state["losses"])
        self._parts = state["parts"]

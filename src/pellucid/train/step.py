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
from ..optim.ema import Ema
from ..optim.gradients import FlatGradients
from ..optim.scaler import LossScale
from ..tasks import Task
from ..types import Batch
from .criterion import BranchLoss, Counts, Criterion
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
        self.criterion = Criterion(task, config.cls)
        self.names = self.criterion.names  # of the losses
        names, params = zip(*((n, p) for n, p in detector.named_parameters() if p.requires_grad), strict=True)
        self.device = params[0].device
        self.updater: Updater = make_updater(detector, config, nc, iterations)
        self.gradients = FlatGradients(params)
        self.window = Window(config.accumulation, names)
        self._held: list[Batch] = []  # parts of a window that is not yet whole
        self.ema = Ema(detector, config.ema_decay, config.ema_ramp)
        self.scaler = LossScale(self.device, enabled=precision == "16")
        self.share = torch.full((), config.share_start, device=self.device)  # weight of the one-to-many branch
        self.skipped = torch.zeros((), device=self.device)  # steps with infinities
        self.clear_losses()

    def losses_of(self, batch: Batch, last: bool = False) -> Iterator[Tensor]:
        """The losses to differentiate now that `batch` has come, none while a window must first be whole; `last` closes it early."""
        if self.window.size == 1 or self.criterion.one_divisor:
            yield self.forward(batch)
            return
        self._held.append(batch)
        if len(self._held) == self.window.size or last:
            parts, self._held = self._held, []
            counts = self.look(parts)
            images = sum(len(part) for part in parts) * world()
            self._factor = self.scaler.of_sum(images)
            for part in parts:
                many, one = self._branches(part)
                yield self.window.add_known(many, one, self.share, images, counts) * self._factor

    def forward(self, batch: Batch) -> Tensor:
        """The loss of the next part of the window, to be differentiated."""
        many, one = self._branches(batch)
        if world() > 1 and not self.criterion.one_divisor:
            images = len(batch) * world()
            of_many, of_one = of_all((many.counts, one.counts))
            self._factor = self.scaler.of_sum(images)
            return self.window.add_known(many, one, self.share, images, (of_many, of_one)) * self._factor
        loss = self.window.add(many, one, self.share, len(batch))
        self._factor = self.scaler.of_sum(self.window.first)
        return loss * self._factor

    @torch.no_grad()
    def look(self, parts: Sequence[Batch]) -> tuple[Counts, Counts]:
        """What the losses of a window are divided by; weights and BatchNorm statistics stay as they are."""
        with statistics_held(self.detector), self.autocast():
            seen = [self.criterion(self.detector(part.images), part.targets) for part in parts]
        of_many, of_one = of_all((summed([many.counts for many, _ in seen]), summed([one.counts for _, one in seen])))
        return of_many, of_one

    def _branches(self, batch: Batch) -> tuple[BranchLoss, BranchLoss]:
        with self.autocast():
            output = self.detector(batch.images)
        many, one = self.criterion(output, batch.targets)
        items = one.items()
        self._losses += torch.stack([items[name] for name in self.names])
        self._parts += 1
        return many, one

    def collect(self) -> None:
        """Take up the gradient that backward left."""
        self.gradients.collect()

    def prepare(self) -> None:
        """Before the optimizer's step: correct, unscale, check and clip the gradient; set the rates of this step."""
        self.window.correct(self.gradients)
        add_up(self.gradients.flat.vector)
        _, self.found_inf = self.gradients.finish(self.config.clip_norm, self._factor)
        self.updater.prepare(self.found_inf)

    def conclude(self) -> None:
        """After it: average, adapt the loss scale, and start a new window."""
        self.ema.update(self.detector)
        self.scaler.update(self.found_inf)
        self.skipped += self.found_inf
        self.gradients.release()
        self.window.reset()

    def agree(self) -> None:
        """Average over all ranks what each has from its own pictures: BatchNorm statistics, of the model and of its average."""
        average([value for model in (self.detector, self.ema.model) for value in model.buffers() if value.is_floating_point()])

    def __call__(self, batch: Batch) -> None:
        """A whole step without a framework: a window of one part."""
        self.forward(batch).backward()
        self.collect()
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
        self._losses, self._parts = torch.zeros(len(self.names), device=self.device), 0

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

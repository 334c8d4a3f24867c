"""The training step as a LightningModule; names no task."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from ..config import TrainConfig
from ..errors import UsageError
from ..models.build import Detector
from ..optim.ema import Ema
from ..optim.gradients import FlatGradients
from ..optim.scaler import LossScale
from ..optim.schedule import branch_share
from ..tasks import Task
from ..types import Batch
from ..zoo import Card
from .criterion import Criterion
from .device import pick_precision
from .optimizer import make_optimizer
from .window import Window

DTYPES = {"32": torch.float32, "16": torch.float16, "bf16": torch.bfloat16}


class DetectorModule(LightningModule):
    """A detector in training by manual optimisation: accumulate, unscale, clip, step, average, with no host synchronisation.

    Precision comes from `config.precision`; leave the Trainer's own at its default. The model that counts is `ema.model`.
    """

    def __init__(self, detector: Detector, task: Task, config: TrainConfig, card: Card) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.detector = detector.to(memory_format=torch.channels_last)
        self.task, self.config, self.card = task, config, card
        self.criterion = Criterion(task, config.cls)
        self.optimizer_steps = 0
        self._restored: dict[str, Any] | None = None
        freeze(self.detector, config.freeze)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Everything that lives beside the weights on their device."""
        iterations = int(self.trainer.estimated_stepping_batches)
        updates = self.config.epochs * -(-iterations // (self.config.epochs * self.config.accumulation))
        optimizer, self.schedule = make_optimizer(self.detector, self.config, self.card.nc, iterations, updates)
        names, params = zip(*((n, p) for n, p in self.detector.named_parameters() if p.requires_grad), strict=True)
        self.gradients = FlatGradients(params)
        self.window = Window(self.config.accumulation, names)
        self.ema = Ema(self.detector, self.config.ema_decay, self.config.ema_ramp)
        self.precision = pick_precision(self.config.precision, self.device)
        self.scaler = LossScale(self.device, enabled=self.precision == "16")
        self.share = torch.zeros((), device=self.device)
        self.skipped = torch.zeros((), device=self.device)
        self._clear_losses()
        return optimizer

    def on_train_start(self) -> None:
        """Refuse a second scaler; give a resumed run its state back."""
        if self.trainer.precision not in ("32-true", "bf16-mixed"):
            raise UsageError(
                f"expected a Trainer at its default precision, got {self.trainer.precision}; set precision in the TrainConfig instead"
            )
        if self._restored is not None:
            self.ema.load_state_dict(self._restored["ema"])
            self.scaler.load_state_dict(self._restored["scaler"])
            self.skipped.copy_(self._restored["skipped"])
            self.optimizer_steps = self._restored["steps"]
            self._losses, self._parts = self._restored["losses"].to(self.device), self._restored["parts"]
            self._restored = None

    def on_train_epoch_start(self) -> None:
        self.detector.train()
        freeze(self.detector, self.config.freeze)
        config = self.config
        self.share.fill_(branch_share(self.current_epoch, config.epochs, config.share_start, config.share_end))

    def training_step(self, batch: Batch, index: int) -> None:
        """Forward, objective, backward; at the end of an accumulation window also the update."""
        with self.autocast():
            output = self.detector(batch.images)
        many, one = self.criterion(output, batch.targets)
        total = self.window.add(many, one, self.share, len(batch))
        self.manual_backward(total * self.scaler.scale)
        self.gradients.collect()
        self._note(one.items())
        if self.window.parts == self.window.size or self.trainer.is_last_batch:
            self.update()

    def update(self) -> None:
        """One optimizer step from the window's gradients; a step with infinities changes nothing but the loss scale."""
        optimizer = self.optimizers()
        self.window.correct(self.gradients)
        _, found_inf = self.gradients.finish(self.config.clip_norm, self.scaler.scale)
        optimizer.optimizer.found_inf = found_inf
        self._follow_schedule(optimizer.optimizer)
        optimizer.step()
        self.ema.update(self.detector)
        self.scaler.update(found_inf)
        self.skipped += found_inf
        self.gradients.release()
        self.window.reset()
        self.optimizer_steps += 1

    def autocast(self) -> AbstractContextManager:
        """The arithmetic of the forward pass."""
        return torch.autocast(self.device.type, DTYPES[self.precision], enabled=self.precision != "32")

    @property
    def last_losses(self) -> dict[str, Tensor]:
        """Losses of the one-to-one branch, averaged over the epoch so far."""
        return dict(zip(self._names, self._losses / max(self._parts, 1), strict=True))

    def on_train_epoch_end(self) -> None:
        self._clear_losses()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["pellucid"] = {
            "card": self.card.to_json(),
            "ema": self.ema.state_dict(),
            "scaler": self.scaler.state_dict(),
            "skipped": self.skipped,
            "steps": self.optimizer_steps,
            "losses": self._losses,
            "parts": self._parts,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._restored = checkpoint["pellucid"]

    def _note(self, items: dict[str, Tensor]) -> None:
        self._losses += torch.stack([items[name] for name in self._names])
        self._parts += 1

    def _clear_losses(self) -> None:
        self._names = (*(term.name for term in self.task.terms), "cls")
        self._losses, self._parts = torch.zeros(len(self._names), device=self.device), 0

    def _follow_schedule(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            start = group["warmup_lr"] / group["base_lr"] if group["bias"] else 0.0
            group["lr"].fill_(group["base_lr"] * self.schedule.rate(self.optimizer_steps, start))
            if isinstance(group.get("momentum"), Tensor):
                group["momentum"].fill_(self.schedule.momentum_at(self.optimizer_steps))


def freeze(detector: Detector, layers: int) -> None:
    """Hold the first `layers` layers of backbone and neck: no gradient, BatchNorm statistics as they are."""
    blocks: list[nn.Module] = [*detector.backbone.layers, *detector.neck.children()]
    if layers > len(blocks):
        raise UsageError(f"freeze: expected at most {len(blocks)} layers, got {layers}; the head always learns")
    for block in blocks[:layers]:
        block.eval().requires_grad_(False)

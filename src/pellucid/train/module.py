"""The training step as a LightningModule; names no task."""

from __future__ import annotations

import math
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, nn

from ..config import TrainConfig
from ..decode import decode
from ..errors import UsageError
from ..evaluate import CocoMetric
from ..evaluate.run import place
from ..models.build import Detector
from ..optim.ema import Ema
from ..optim.schedule import branch_share
from ..tasks import Task
from ..types import Batch
from ..zoo import Card
from .device import pick_precision
from .ranks import gathered
from .step import TrainStep


class SummedDDP(DDPStrategy):
    """Lightning's DDP, its processes and barriers, without the wrapper that averages gradients: the training step sums them itself."""

    def configure_ddp(self) -> None:
        """The module stays as it is."""


class DetectorModule(LightningModule):
    """A detector in training by manual optimisation.

    Precision comes from `config.precision`; leave the Trainer's own at its default. The model that counts is `ema.model`.
    """

    step: TrainStep

    def __init__(self, detector: Detector, task: Task, config: TrainConfig, card: Card) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.detector = detector.to(memory_format=torch.channels_last)
        self.task, self.config, self.card = task, config, card
        self._restored: dict[str, Any] | None = None
        freeze(self.detector, config.freeze)
        self.detector.train()  # statistics of frozen layers are held from the first epoch on

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Make all that lives beside the weights on their device."""
        precision = pick_precision(self.config.precision, self.device)
        iterations = int(self.trainer.estimated_stepping_batches)
        self.step = TrainStep(self.detector, self.task, self.config, self.card.nc, precision, iterations)
        return self.step.updater.optimizer

    def on_train_start(self) -> None:
        """Refuse a second scaler; give a resumed run its state back."""
        if self.trainer.precision not in ("32-true", "bf16-mixed"):
            given = self.trainer.precision
            raise UsageError(f"expected a Trainer at its default precision, got {given}; set precision in the TrainConfig instead")
        if isinstance(self.trainer.strategy, DDPStrategy) and not isinstance(self.trainer.strategy, SummedDDP):
            raise UsageError(
                "expected strategy=SummedDDP() of pellucid.train.module for several devices, got a DDP that averages gradients"
            )
        if self._restored is not None:
            self.step.load_state_dict(self._restored)
            self._restored = None

    def on_train_epoch_start(self) -> None:
        config = self.config
        self.detector.train()
        freeze(self.detector, config.freeze)
        self.step.share.fill_(branch_share(self.current_epoch, config.epochs, config.share_start, config.share_end))

    def training_step(self, batch: Batch, index: int) -> None:
        """Forward, objective, backward; at the end of an accumulation window also the update."""
        for loss in self.step.losses_of(batch, self.trainer.is_last_batch):
            self.manual_backward(loss)
            self.step.collect()
        if self.step.window.full or self.trainer.is_last_batch:
            self.step.prepare()
            self.optimizers().step()  # type: ignore[union-attr]
            self.step.conclude()

    def on_train_epoch_end(self) -> None:
        self.step.clear_losses()

    def on_validation_epoch_start(self) -> None:
        """For a plain Trainer with our DataModule; `train()` scores by `evaluate` instead."""
        if hasattr(self, "step"):
            self.step.agree()
        self._metric = CocoMetric(self.trainer.datamodule.index("val"), self.task.metrics)  # type: ignore[attr-defined]

    def validation_step(self, batch: Batch, index: int) -> None:
        model = self.step.ema.model if hasattr(self, "step") else self.detector
        found = decode(model(batch.images), self.task, "e2e", conf=0.001)
        self._metric.update([place(instances, meta) for instances, meta in zip(found, batch.metas, strict=True)])

    def on_validation_epoch_end(self) -> None:
        """Log "e2e/box/ap" and its kin; what cannot be scored stays out."""
        self._metric.merge(gathered(self._metric.state()))
        scores = self._metric.compute()
        self.log_dict({f"e2e/{name}": value for name, value in scores.items() if not math.isnan(value)}, prog_bar=True)

    @property
    def ema(self) -> Ema:
        """The averaged model."""
        return self.step.ema

    @property
    def last_losses(self) -> dict[str, Tensor]:
        """Losses of the one-to-one branch, averaged over the epoch so far."""
        return self.step.losses()

    @property
    def skipped(self) -> Tensor:
        """Steps whose gradient was not finite."""
        return self.step.skipped

    @property
    def optimizer_steps(self) -> int:
        return self.step.updater.steps

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["pellucid"] = {"card": self.card.to_json(), **self.step.state_dict()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._restored = checkpoint["pellucid"]


def freeze(detector: Detector, layers: int) -> None:
    """Hold the first `layers` layers of backbone and neck: no gradient, BatchNorm statistics as they are."""
    blocks: list[nn.Module] = [*detector.backbone.layers, *detector.neck.children()]
    if layers > len(blocks):
        raise UsageError(f"freeze: expected at most {len(blocks)} layers, got {layers}; the head always learns")
    for block in blocks[:layers]:
        block.eval().requires_grad_(False)

"""Which optimizer a run gets, with which rates, and how they move."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..config import TrainConfig
from ..optim.groups import parameter_groups
from ..optim.musgd import MuSGD
from ..optim.schedule import Schedule


class Updater:
    """An optimizer and its schedule; rates are device tensors filled in place."""

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Schedule) -> None:
        self.optimizer, self.schedule = optimizer, schedule
        self.steps = 0

    @property
    def rate(self) -> Tensor:
        """The learning rate of most matrices and kernels, which `lr0` names; class stems have three times as much, ()."""
        plain = [group for group in self.optimizer.param_groups if not group["bias"]]
        lowest: Tensor = min(plain, key=lambda group: group["base_lr"])["lr"]
        return lowest

    def prepare(self, found_inf: Tensor) -> None:
        """Set rates and momentum of the next step, and whether it is to be skipped."""
        self.optimizer.found_inf = found_inf  # type: ignore[attr-defined]
        for group in self.optimizer.param_groups:
            start = group["warmup_lr"] / group["base_lr"] if group["bias"] and group["base_lr"] else 0.0
            group["lr"].fill_(group["base_lr"] * self.schedule.rate(self.steps, start))
            if isinstance(group.get("momentum"), Tensor):
                group["momentum"].fill_(self.schedule.momentum_at(self.steps))
        self.steps += 1


def make_updater(model: nn.Module, config: TrainConfig, nc: int, iterations: int) -> Updater:
    """Optimizer and schedule of a run of so many batches; rates and momentum that the user left open are chosen here."""
    adam = config.optimizer == "adamw"
    lr = _or(config.lr0, 0.01 / (4 + nc) if adam else 0.01)
    momentum = _or(config.momentum, 0.9 if adam else 0.937)
    groups = parameter_groups(model, lr, config.weight_decay)
    for group in groups:
        group["base_lr"] = group["lr"]
        group["warmup_lr"] = _or(config.warmup_bias_lr, 0.0 if adam else 0.1)
    updates = config.epochs * -(-iterations // (config.epochs * config.accumulation))
    warmup = min(round(config.warmup_epochs * updates / config.epochs), updates // 2)
    schedule = Schedule(updates, warmup, config.lrf, momentum, min(config.warmup_momentum, momentum))
    if not adam:
        return Updater(MuSGD(groups, lr, momentum), schedule)
    device = next(model.parameters()).device
    for group in groups:
        group["lr"] = torch.tensor(group["lr"], device=device)
    return Updater(torch.optim.AdamW(groups, lr=torch.tensor(lr, device=device), betas=(momentum, 0.999), fused=True), schedule)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value

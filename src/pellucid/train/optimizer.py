"""Which optimizer a run gets, with which rates, and how they move."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
        self.advance = optimizer.step
        self.steps = 0
        self.found_inf = torch.zeros((), device=optimizer.param_groups[0]["params"][0].device)  # 1: the next step is to be skipped
        optimizer.found_inf = self.found_inf  # type: ignore[attr-defined]

    @property
    def rate(self) -> Tensor:
        """The learning rate of most matrices and kernels, which `lr0` names; class stems have three times as much, ()."""
        plain = [group for group in self.optimizer.param_groups if not group["bias"]]
        lowest: Tensor = min(plain, key=lambda group: group["base_lr"])["lr"]
        return lowest

    def set_rates(self) -> None:
        """Set rates and momentum of the next step."""
        for group in self.optimizer.param_groups:
            start = group["warmup_lr"] / group["base_lr"] if group["bias"] and group["base_lr"] else 0.0
            group["lr"].fill_(group["base_lr"] * self.schedule.rate(self.steps, start))
            if isinstance(group.get("momentum"), Tensor):
                group["momentum"].fill_(self.schedule.momentum_at(self.steps))
        self.steps += 1

    def replaced_by(self, update: Callable[[], None]) -> None:
        """Have the optimizer's `step`, which a framework calls and counts, do `update`, which calls `advance`."""

        def step(closure: Callable[[], object] | None = None) -> None:
            if closure is not None:
                closure()
            update()

        self.optimizer.step = step  # type: ignore[method-assign, assignment]

    def moments(self) -> list[Tensor]:
        """Places that a recorded step reads and writes."""
        return [value for state in self.optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]


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
    how = {"fused": True, "capturable": device.type == "cuda"}
    optimizer = torch.optim.AdamW(groups, lr=torch.tensor(lr, device=device), betas=(momentum, 0.999), **how)
    optimizer.register_load_state_dict_post_hook(partial(_place_rates, device=device))
    return Updater(optimizer, schedule)


def _place_rates(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Rates of a checkpoint lie where it was read."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"].to(device)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value

"""Which optimizer a run gets, with which rates."""

from __future__ import annotations

import torch
from torch import nn

from ..config import TrainConfig
from ..optim.groups import parameter_groups
from ..optim.musgd import MuSGD
from ..optim.schedule import Schedule

AUTO_LIMIT = 10_000  # optimizer=auto: AdamW for runs of fewer iterations than this


def make_optimizer(model: nn.Module, config: TrainConfig, nc: int, iterations: int, updates: int) -> tuple[torch.optim.Optimizer, Schedule]:
    """Optimizer and schedule of a run of `updates` optimizer steps; rates and momentum that the user left open are chosen here."""
    adam = config.optimizer == "adamw" or (config.optimizer == "auto" and iterations < AUTO_LIMIT)
    plain = config.optimizer == "musgd"
    lr = _or(config.lr0, 0.01 / (4 + nc) if adam else 0.01)
    momentum = _or(config.momentum, 0.937 if plain else 0.9)
    groups = parameter_groups(model, lr, config.weight_decay)
    for group in groups:
        group["base_lr"] = group["lr"]
        group["warmup_lr"] = _or(config.warmup_bias_lr, 0.1 if plain else 0.0)
    warmup = min(round(config.warmup_epochs * updates / config.epochs), updates // 2)
    schedule = Schedule(updates, warmup, config.lrf, momentum, min(config.warmup_momentum, momentum))
    if not adam:
        return MuSGD(groups, lr, momentum), schedule
    device = next(model.parameters()).device
    for group in groups:
        group["lr"] = torch.tensor(group["lr"], device=device)
    return torch.optim.AdamW(groups, lr=torch.tensor(lr, device=device), betas=(momentum, 0.999), fused=True), schedule


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value

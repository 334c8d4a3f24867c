"""What a run remembers beside its weights: where it is, its rows of figures, its best epoch. It goes into every checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .folder import read_rows, write_rows
from .ranks import world


@dataclass
class Journal:
    """`epoch` and `batch` say which batch is trained next; an epoch is over when it has been scored and saved."""

    folder: Path
    epochs: int
    metric: str  # decides the best epoch: "e2e/box/ap"
    epoch: int = 0
    batch: int = 0  # of a rank, in an epoch that has not ended
    world: int = 0  # ranks that trained them; 0: not known
    best_value: float = math.nan
    best_epoch: int = 0  # counted from 1; 0 while nothing has been scored
    rows: list[dict[str, float]] = field(default_factory=list)
    interrupted: bool = False  # stopped by a signal, in the middle of an epoch or at its end
    stopped_early: bool = False
    writes: bool = True  # one of several processes does

    @property
    def last(self) -> Path:
        return self.folder / "weights" / "last.ckpt"

    @property
    def best(self) -> Path:
        return self.folder / "weights" / "best.ckpt"

    def end_epoch(self, row: dict[str, float]) -> bool:
        """Add the row of a finished epoch, move on, and say whether its weights are the ones to keep."""
        self.epoch, self.batch = int(row["epoch"]), 0
        self.rows.append(row)
        if self.writes:
            write_rows(self.folder / "results.csv", self.rows)
        value = row.get(self.metric, math.nan)
        first = math.isfinite(value) and not self.best_epoch
        better = first or value > self.best_value
        if better:
            self.best_value, self.best_epoch = value, self.epoch
        return better or value == self.best_value == 0  # while nothing is found the latest weights are kept

    def reread(self) -> dict[str, float]:
        """Take up what other processes have written, if anything; the last row."""
        if self.last.is_file():
            self.restore(torch.load(self.last, map_location="cpu", weights_only=True)["run"])
        return self.rows[-1] if self.rows else {}

    def out_of_patience(self, patience: int) -> bool:
        """Whether so many epochs have passed since the best one; 0 waits for ever."""
        return bool(patience and self.best_epoch and self.epoch - self.best_epoch >= patience and not self.batch)

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint that loads without unpickling code."""
        position = {"epoch": self.epoch, "batch": self.batch, "world": world()}
        return {**position, "metric": self.metric, "best_value": self.best_value, "best_epoch": self.best_epoch}

    def share(self, world: int) -> None:
        """Count the batches that are done as those of so many ranks, so that no picture of the epoch is left out."""
        if self.world:
            self.batch, self.world = self.batch * self.world // world, world

    def restore(self, state: dict[str, Any]) -> None:
        """Take up `state`; rows of later epochs, which will be trained again, are forgotten."""
        for name in ("epoch", "batch", "metric", "best_value", "best_epoch"):
            setattr(self, name, state[name])
        self.world = state.get("world", 0)
        self.rows = [row for row in read_rows(self.folder / "results.csv") if row.get("epoch", math.inf) <= self.epoch]

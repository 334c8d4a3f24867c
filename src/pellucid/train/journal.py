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
    best_epoch: int = 0  # whose weights are kept, counted from 1; 0 while none are
    improved: int = 0  # the epoch of the last better score, from which patience counts; 0 while nothing could be scored
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
        if self.metric not in row:
            return False
        value, best = row[self.metric], self.best_value
        better = not math.isnan(value) and not value <= best
        found_nothing = value == best == 0 or (math.isnan(value) and math.isnan(best))
        if better:
            self.improved = self.epoch
        if better or found_nothing:  # while nothing is found the latest weights are kept
            self.best_value, self.best_epoch = value, self.epoch
        return better or found_nothing

    def reread(self) -> dict[str, float]:
        """Take up what other processes have written, if anything; the last row."""
        if self.last.is_file():
            self.restore(torch.load(self.last, map_location="cpu", weights_only=True)["run"])
        return self.rows[-1] if self.rows else {}

    def out_of_patience(self, patience: int) -> bool:
        """Whether so many epochs have passed since the score last rose; 0 waits for ever."""
        return bool(patience and self.improved and self.epoch - self.improved >= patience and not self.batch)

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint that loads without unpickling code."""
        position = {"epoch": self.epoch, "batch": self.batch, "world": world()}
        return {**position, "metric": self.metric, "best_value": self.best_value, "best_epoch": self.best_epoch, "improved": self.improved}

    def share(self, world: int) -> None:
        """Count the batches that are done as those of so many ranks, so that no picture of the epoch is left out."""
        if self.world:
            self.batch, self.world = self.batch * self.world // world, world

    def restore(self, state: dict[str, Any]) -> None:
        """Take up `state`; rows of later epochs, which will be trained again, are forgotten."""
        for name in ("epoch", "batch", "metric", "best_value", "best_epoch"):
            setattr(self, name, state[name])
        self.world = state.get("world", 0)
        self.improved = state.get("improved", self.best_epoch)
        self.rows = [row for row in read_rows(self.folder / "results.csv") if row.get("epoch", math.inf) <= self.epoch]

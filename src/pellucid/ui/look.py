"""What the page shows of one picture and one model; knows nothing of the page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..config import PredictConfig, merged
from ..model import predict
from ..results import Result
from ..zoo import open_model, shipped_names

KEPT = 3  # models held in memory
HEADS = ("class", "score", "x1", "y1", "x2", "y2")


@dataclass(frozen=True)
class Looked:
    """What was found on a picture."""

    overlay: np.ndarray  # (h, w, 3) uint8 RGB
    rows: list[list[Any]]  # one for each object, as `HEADS`, best first
    line: str  # how many, and how long it took


@dataclass
class Looker:
    """Opens models as they are asked for and keeps the last few; a file that was written anew is read anew."""

    device: str = "auto"
    _open: dict[tuple[str, float], Any] = field(default_factory=dict)

    def look(self, picture: str | Path, model: str, conf: float = 0.25, path: str = "e2e") -> Looked:
        """Objects of at least score `conf` on a picture file, by one decode path; the errors of `open_model` and of `predict`."""
        config = merged(PredictConfig(), {"model": model, "conf": float(conf), "path": path, "device": self.device})
        result = next(iter(predict(config, str(picture), self._opened(model))))
        return Looked(result.plot(), rows_of(result), line_of(result, path))

    def _opened(self, model: str) -> Any:
        file = Path(model)
        key = (model, file.stat().st_mtime if file.is_file() else 0.0)
        opened = self._open.pop(key, None) or open_model(model)
        self._open[key] = opened  # the newest is the last
        for old in list(self._open)[:-KEPT]:
            del self._open[old]
        return opened


def rows_of(result: Result) -> list[list[Any]]:
    """The rows of the table; coordinates in original pixels."""
    boxes = result.boxes
    parts = zip(boxes.cls.tolist(), boxes.conf.tolist(), boxes.xyxy.tolist(), strict=True)
    return [[result.names[int(label)], round(score, 3), *(round(side, 1) for side in box)] for label, score, box in parts]


def line_of(result: Result, path: str) -> str:
    """12 objects in 640 x 480 pixels by e2e: reading 4.1 ms, network 10.5 ms, decoding 0.6 ms"""
    height, width = result.orig_shape
    stages = {"reading": "pre", "network": "network", "decoding": "post"}
    times = ", ".join(f"{word} {result.speed[stage]:.1f} ms" for word, stage in stages.items())
    return f"{len(result)} object{'s' * (len(result) != 1)} in {width} x {height} pixels by {path}: {times}"


def models_at_hand(runs: str) -> list[str]:
    """Weights of runs under a folder, the newest first, and the names that ship."""
    files = sorted(Path(runs).glob("*/*/weights/best.safetensors"), key=lambda file: file.stat().st_mtime, reverse=True)
    return [*map(str, files), *shipped_names()]

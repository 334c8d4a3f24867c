"""How long prediction takes, stage by stage, measured on the road that every picture takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np

from ..data.samples import sample_path
from ..results import Result

WARM = 5  # batches before those that count
STAGES = ("pre", "network", "post")


def a_picture() -> Path:
    """A photo that ships."""
    return min((sample_path("trees").parent / "images" / "val").iterdir())


def measure(look: Callable[[Iterator[Path]], Iterator[Result]], picture: Path, batch: int, repeats: int) -> dict[str, Any]:
    """Milliseconds a picture of each stage over `repeats` batches, and images a second from first to last; `look` is a prediction.

    `pre` is reading, resizing and placing on the canvas. Reading goes on beside the network, so that the throughput can be better than the
    total says.
    """
    results = look(repeat(picture, batch * (WARM + repeats)))
    rows, found, began = [], 0, 0.0
    for number in range(WARM + repeats):
        group = list(islice(results, batch))
        if number == WARM - 1:
            began = time.perf_counter()
        if number >= WARM:
            rows.append([np.mean([result.speed[stage] for result in group]) for stage in STAGES])
            found = len(group[0])
    seconds = time.perf_counter() - began
    times = np.array(rows)  # (repeats, 3)
    whole = times.sum(1)
    middle = dict(zip(STAGES, np.median(times, 0), strict=True))
    parts = {stage: _spread(times[:, i], middle[stage] / sum(middle.values())) for i, stage in enumerate(STAGES)}
    return {"ms": {**parts, "total": _spread(whole, 1.0)}, "images_per_s": round(batch * repeats / seconds, 2), "objects": found}


def _spread(values: np.ndarray, share: float) -> dict[str, float]:
    low, median, high = np.quantile(values, (0.1, 0.5, 0.9))
    figures = {"median": median, "p10": low, "p90": high}
    return {**{name: round(float(value), 3) for name, value in figures.items()}, "share": round(float(share), 4)}

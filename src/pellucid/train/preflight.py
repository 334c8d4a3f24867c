"""What is looked at before the first step: the data in a few lines, and room in shared memory, memory and on disk."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..config import TrainConfig
from ..data.index import Index
from ..data.module import DataModule, Loading
from ..errors import PellucidWarning, UsageError
from ..rules import STRIDE
from .folder import available_memory, free_space

PREFETCH = Loading.prefetch  # batches that each worker holds ready
LAYERS = 3  # source pixels of a mosaic sample, at the most usual, in canvases
CHECKPOINT_BYTES = 40  # a parameter in a checkpoint, twice: weights, average, optimizer state


def summary(data: DataModule) -> Iterator[str]:
    """One line a split, of the pictures in use, and one for what was found wrong."""
    for name, whole in data.dataset.splits.items():
        index = data.index(name)
        cut = f" of {len(whole):,}" if len(index) < len(whole) else ""
        share = f" (fraction={data.loading.fraction:g})" if cut else ""
        empty = int((index.start[1:] == index.start[:-1]).sum())
        negatives = f", {empty:,} without objects" if empty else ""
        classes = f"{len(index.names)} class{'es' * (len(index.names) != 1)}"
        ignored = int(index.ignore.sum())
        regions = f" and {ignored:,} ignored" if ignored else ""
        yield f"{name}: {len(index):,}{cut} images{share}, {len(index.labels) - ignored:,} objects{regions}, {classes}{negatives}"
    findings = data.dataset.all_findings()
    if findings:
        command = f"pellucid data check data={shlex.quote(str(data.dataset.source))} task={data.task.name} imgsz={data.loading.imgsz}"
        yield f"{len(findings)} kind{'s' * (len(findings) != 1)} of findings in the data: {command}"


def check_batches(config: TrainConfig, images: int, processes: int) -> None:
    """UsageError where a batch has one picture and the network's last map one cell: BatchNorm has no spread of a single value."""
    own = -(-images // processes)
    if config.imgsz == STRIDE and (own % config.batch == 1 or config.batch == 1):
        better = next((batch for batch in range(config.batch + 1, 2 * config.batch + 4) if own % batch != 1), 2) if own > 1 else None
        advice = f"take imgsz={2 * STRIDE}" + (f", or batch={better}" if better else "")
        raise UsageError(
            f"batch: expected at least two pictures in every batch at imgsz={STRIDE}, where BatchNorm sees one value of each, "
            f"got one in the last batch of {own} pictures at batch={config.batch}; {advice}"
        )


def check_room(config: TrainConfig, workers: int, train: Index, splits: int, folder: Path, parameters: int) -> None:
    """Warn, with numbers and the way out, where the run is likely to end for want of room."""
    canvas = config.imgsz**2 * 3
    if workers:
        need = workers * PREFETCH * config.batch * canvas * LAYERS
        _warn_if(need, free_space("/dev/shm"), "/dev/shm", "take fewer workers=, a smaller batch=, or give the container more --shm-size")
    if config.cache == "ram":
        need = sum_pixels(train, config.imgsz) * 3
        _warn_if(need, available_memory(), "memory for cache=ram", "take cache=disk or cache=none")
    need = parameters * CHECKPOINT_BYTES + (sum_pixels(train, config.imgsz) * 3 if config.cache == "disk" else 0)
    _warn_if(need, free_space(folder), f"the disk of {folder}", "choose another project=... or free some space")


def sum_pixels(index: Index, size: int) -> int:
    """Pixels of all images once their longest side is `size`."""
    longest = index.sizes.max(1).clip(1)
    return int((index.sizes.astype(float) * (size / longest)[:, None]).prod(1).sum())


def _warn_if(need: float, free: float, where: str, advice: str) -> None:
    if need > free:
        warnings.warn(
            f"{where}: about {need / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free; {advice}", PellucidWarning, stacklevel=3
        )

"""A training step and its parts as JSON: `python bench/step.py [batch=64] [imgsz=640] [precision=bf16] [scale=n] [optimizer=musgd]`."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time

import torch

from pellucid.config import TrainConfig
from pellucid.tasks import TASKS
from pellucid.train.step import TrainStep
from pellucid.types import Batch, ImageMeta, Targets
from pellucid.zoo import Card, create

DEFAULTS = {"batch": "64", "imgsz": "640", "precision": "bf16", "scale": "n", "optimizer": "musgd", "objects": "10", "repeats": "20"}


def synthetic(images: int, size: int, objects: int, device: str) -> Batch:
    """Noise pictures with random boxes."""
    g = torch.Generator().manual_seed(0)
    rows = 1 << max(2, (objects - 1).bit_length())
    low = torch.rand(images, rows, 2, generator=g) * size * 0.8
    boxes = torch.cat((low, low + size * (0.02 + 0.18 * torch.rand(images, rows, 2, generator=g))), -1)
    valid = (torch.arange(rows) < objects).repeat(images, 1)
    pixels = torch.randint(256, (images, 3, size, size), dtype=torch.uint8, generator=g)
    targets = Targets(torch.randint(80, (images, rows), generator=g), valid, boxes * valid[..., None])
    return Batch(pixels, targets, tuple(ImageMeta(i, i, "", size, size) for i in range(images))).to(device)


def median_ms(function, repeats: int) -> float:
    """Median wall time with the device idle before and after."""
    times = []
    for _ in range(repeats + 3):
        synchronize()
        start = time.perf_counter()
        function()
        synchronize()
        times.append(time.perf_counter() - start)
    return round(1e3 * statistics.median(times[3:]), 2)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(options: dict[str, str]) -> dict:
    """The figures of one setting."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, repeats = int(options["batch"]), int(options["repeats"])
    card = Card("detect", options["scale"], tuple(f"class{i}" for i in range(80)), tuple(range(80)))
    config = TrainConfig(model="detect-n", data="none", batch=images, accumulate=1, optimizer=options["optimizer"])
    detector = create(card, 0).to(device, memory_format=torch.channels_last)
    step = TrainStep(detector, TASKS["detect"](), config, card.nc, options["precision"], 10_000)
    batch = synthetic(images, int(options["imgsz"]), int(options["objects"]), device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    whole = median_ms(lambda: step(batch), repeats)

    def network():
        with step.autocast():
            output = detector(batch.images)
        sum(value.float().square().mean() for dense in (output.many, output.one) for value in dense.outputs.values()).backward()
        detector.zero_grad()

    def objective():
        step.criterion(outputs, batch.targets)

    def update():
        step.prepare()
        step.updater.optimizer.step()
        step.conclude()

    with step.autocast(), torch.no_grad():
        outputs = detector(batch.images)
    step.forward(batch).backward()
    step.collect()
    parts = {
        "network": median_ms(network, repeats),
        "objective_forward": median_ms(objective, repeats),
        "update": median_ms(update, repeats),
    }
    start = time.perf_counter()
    for _ in range(repeats):
        step(batch)
    synchronize()
    stream = (time.perf_counter() - start) / repeats
    memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
    figures = {
        "step_ms": whole,
        **{f"{k}_ms": v for k, v in parts.items()},
        "images_per_s": round(images / stream, 1),
        "memory_gib": memory,
    }
    return {**options, **figures}


if __name__ == "__main__":
    options = DEFAULTS | dict(argument.split("=", 1) for argument in sys.argv[1:])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    print(json.dumps({"bench": "step", "device": name, "torch": torch.__version__, "commit": commit, **measure(options)}))

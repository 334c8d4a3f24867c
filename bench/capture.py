"""Speed and memory of a training step by what is captured: `python bench/capture.py [tasks=...] [batches=16,64] [modes=none,step] ...`.

Real pictures of the samples that ship, mosaics, n scale; the median of 20 steps that each end with the device idle, and a stream of 20 that
do not wait. Prints a line a case and JSON last; `gain` is against eager in the same process. `lanes=1` records everything in one stream.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time

import torch

from pellucid.augment.apply import apply
from pellucid.config import TrainConfig
from pellucid.numerics import lanes
from pellucid.train.run import TrainingData, loading_of, open_all
from pellucid.train.step import TrainStep
from pellucid.types import Batch
from pellucid.zoo import make_task

SAMPLES = {"detect": "trees", "segment": "nuclei", "pose": "quokka", "obb": "nuclei-obb"}
OWN = {
    "tasks": "detect,segment,pose,obb",
    "batches": "16,64",
    "modes": "none,loss,network,loss+network,step",
    "precision": "16",
    "imgsz": "640",
    "repeats": "20",
    "lanes": str(lanes.LANES),
}


def prepare(task: str, images: int, mode: str, options: dict[str, str]) -> tuple[TrainStep, list[Batch]]:
    """A step and two batches of so many pictures on the device."""
    size = int(options["imgsz"])
    config = TrainConfig(model=f"{task}-n", data=SAMPLES[task], batch=8, nbs=8, imgsz=size, workers=0, capture=mode)
    dataset, detector, card = open_all(config)
    loader = TrainingData(dataset, make_task(card), **loading_of(config)).train_dataloader()
    packed = []
    for epoch in range(2):
        loader.keys.set_epoch(epoch)
        packed += list(loader)
    batches = [apply(part.to("cuda")) for part in packed]
    detector = detector.to("cuda", memory_format=torch.channels_last)
    step = TrainStep(detector, make_task(card), config, card.nc, options["precision"], 10_000)
    return step, [joined(batches[:4], images), joined(batches[1:5], images)]


def joined(parts: list[Batch], images: int) -> Batch:
    """One batch of so many pictures, those of the parts again and again, padded to the most objects."""
    rows = max(part.targets.valid.shape[1] for part in parts)

    def padded(part: Batch) -> Batch:
        def wider(tensor: torch.Tensor) -> torch.Tensor:
            missing = tensor.new_zeros(tensor.shape[0], rows - tensor.shape[1], *tensor.shape[2:])
            return torch.cat((tensor, missing), 1)

        by_row = {name: wider(value) if value.dim() > 1 else value for name, value in part.targets.extras.items()}
        targets = type(part.targets)(wider(part.targets.labels), wider(part.targets.valid), wider(part.targets.boxes), by_row)
        return Batch(part.images, targets, part.metas)

    chosen = [padded(part) for part in parts]
    order = torch.arange(images, device="cuda") % sum(len(part) for part in chosen)

    def cat(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(values)[order].contiguous()

    first = chosen[0].targets
    extras = {name: cat([part.targets.extras[name] for part in chosen]) for name in first.extras}
    targets = type(first)(*(cat([getattr(part.targets, name) for part in chosen]) for name in ("labels", "valid", "boxes")), extras)
    return Batch(cat([part.images for part in chosen]), targets, (chosen[0].metas * images)[:images])


def measure(task: str, images: int, mode: str, options: dict[str, str]) -> dict:
    """The figures of one case."""
    repeats = int(options["repeats"])
    began = time.perf_counter()
    step, batches = prepare(task, images, mode, options)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for number in range(6):
        step(batches[number % 2])
    torch.cuda.synchronize()
    ready = time.perf_counter() - start
    times = []
    for number in range(repeats):
        start = time.perf_counter()
        step(batches[number % 2])
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    for number in range(repeats):
        step(batches[number % 2])
    torch.cuda.synchronize()
    stream = (time.perf_counter() - start) / repeats
    memory = torch.cuda.max_memory_reserved() / 2**30
    objects = [int(batch.targets.valid.sum()) / images for batch in batches]
    assert min(objects) > 1
    figures = {"step_ms": 1e3 * statistics.median(times), "stream_ms": 1e3 * stream, "first_six_s": ready, "memory_gib": memory}
    return {"task": task, "batch": images, "mode": mode, "objects": objects[0], **figures, "made_s": time.perf_counter() - began}


def main(options: dict[str, str]) -> list[dict]:
    lanes.LANES = int(options["lanes"])
    rows: list[dict] = []
    for task in options["tasks"].split(","):
        for images in (int(count) for count in options["batches"].split(",")):
            eager = None
            for mode in options["modes"].split(","):
                row = measure(task, images, mode, options)
                eager = eager or row["step_ms"]
                row["gain"] = eager / row["step_ms"]
                row["images_per_s"] = 1e3 * images / row["stream_ms"]
                rows.append({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
                print(rows[-1], flush=True)
                gc.collect()  # a step and its recordings are cycles
                torch.cuda.empty_cache()
    return rows


if __name__ == "__main__":
    options = OWN | dict(argument.split("=", 1) for argument in sys.argv[1:])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    found = main(options)
    head = {"bench": "capture", "device": torch.cuda.get_device_name(), "torch": torch.__version__, "commit": commit}
    print(json.dumps({**head, **options, "rows": found}))

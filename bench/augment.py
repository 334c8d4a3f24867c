"""Speed of making training pictures: the worker's part, the loader with all cores, and the resampling on the device. Prints JSON.

python bench/augment.py [imgsz=640] [batch=64] [workers=<cores>]
"""

import json
import os
import platform
import subprocess
import sys
import time

import torch

from pellucid.augment.apply import apply
from pellucid.augment.presets import PRESETS
from pellucid.data import open_dataset
from pellucid.data.module import DataModule
from pellucid.data.samples import sample_path
from pellucid.tasks import TASKS


def main(imgsz: int = 640, batch: int = 64, workers: int = os.cpu_count() or 1) -> dict:
    result: dict = {"machine": machine(), "imgsz": imgsz, "batch": batch, "workers": workers}
    for name in ("default",):
        pictures = repeated(open_dataset(sample_path("trees")), 32 * workers)
        settings = {"imgsz": imgsz, "batch": batch, "workers": workers, "cache": "ram", "augment": PRESETS[name]}
        data = DataModule(pictures, TASKS["detect"](), **settings)
        loader = data.train_dataloader()
        packed = list(loader)[-2]  # fills the cache
        result[name] = {
            "worker_samples_per_s_one_core": round(one_core(loader), 1),
            "loader_samples_per_s": round(through(loader), 1),
            "MB_per_sample": round(packed.buffer.numel() / len(packed) / 1e6, 2),
            "apply_ms": {device: round(apply_ms(packed, device), 2) for device in devices()},
        }
    return result


def repeated(dataset, times):
    """The training split many times over."""
    index = dataset.splits["train"]
    index = index.take(list(range(len(index))) * times)
    return type(dataset)(dataset.source, dataset.format, {"train": index}, dataset.names, dataset.category_ids)


def one_core(loader) -> float:
    torch.set_num_threads(1)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 4:
        count += len(loader.collate_fn([loader.dataset[1, (row + count) % len(loader.dataset)] for row in range(16)]))
    torch.set_num_threads(os.cpu_count() or 1)
    return count / (time.perf_counter() - start)


def through(loader) -> float:
    loader.sampler.set_epoch(1)
    start, count = None, 0
    for packed in loader:
        start = start or time.perf_counter()
        count += len(packed)
    return (count - loader.batch_size) / (time.perf_counter() - start)


def devices() -> list[str]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def apply_ms(packed, device: str) -> float:
    packed = packed.to(device)
    times = []
    for _ in range(12 if device == "cuda" else 3):
        start = time.perf_counter()
        apply(packed)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3


def machine() -> dict:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cpu": platform.processor(), "cores": os.cpu_count(), "gpu": gpu, "torch": torch.__version__, "commit": commit}


if __name__ == "__main__":
    print(json.dumps(main(**{key: int(value) for key, value in (argument.split("=") for argument in sys.argv[1:])}), indent=1))

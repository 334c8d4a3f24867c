"""Train the sets that the reference figures name and print JSON.

python bench/reference.py DATA_FOLDER [sets=pcb,animals] [seeds=0,1] [jobs=4]

DATA_FOLDER holds one YOLO data set a folder. `jobs` trainings share the device; then one alone, six epochs of pcb at batch 64, gives images
a second. Beside each figure stands what the most used package reached with the same data, epochs, size and batch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

SETS = {
    "pcb": {"epochs": "60", "imgsz": "640", "batch": "32"},
    "animals": {"epochs": "40", "imgsz": "416", "batch": "64"},
}
REFERENCE = {
    "pcb": {"box/ap": 0.596, "box/ap50": 0.911, "box/ap75": 0.696},
    "animals": {"box/ap": 0.075, "box/ap50": 0.139, "box/ap75": 0.075},
}
ALONE = {"epochs": "6", "imgsz": "640", "batch": "64", "val_every": "100", "plots": "false"}
REFERENCE_SPEED = 580  # images a second of the same training alone on an H200
SHOWN = ("box/ap", "box/ap50", "box/ap75")


def train(data: Path, name: str, workers: int, **settings: str) -> dict:
    """Run `pellucid train` and return what it prints at the end."""
    given = {"model": "detect-n", "data": data / "data.yaml", "cache": "ram", "workers": workers, "name": name, "json": "true", **settings}
    with tempfile.TemporaryDirectory() as project:
        words = [f"{key}={value}" for key, value in {**given, "project": project}.items()]
        done = subprocess.run([sys.executable, "-m", "pellucid", "train", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def accuracy(folder: Path, name: str, seed: str, workers: int) -> dict:
    """Both paths of one training."""
    result = train(folder / name, f"{name}{seed}", workers, seed=seed, val_every="20", **SETS[name])
    scores = {path: {metric: result["scores"][path][metric] for metric in SHOWN} for path in ("e2e", "nms")}
    speed = {key: result[key] for key in ("images_per_s", "wall_s")}
    return {"set": name, "seed": int(seed), **SETS[name], **scores, **speed, "reference": REFERENCE[name]}


def main(folder: Path, options: dict[str, str]) -> dict:
    jobs = int(options["jobs"])
    work = [(name, seed) for seed in options["seeds"].split(",") for name in options["sets"].split(",")]
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(lambda item: accuracy(folder, *item, workers=max(1, 14 // jobs)), work))
    alone = train(folder / "pcb", "alone", 14, **ALONE)
    speed = {**ALONE, "images_per_s": alone["images_per_s"], "ratio": alone["images_per_s"] / REFERENCE_SPEED}
    return {"trainings": runs, "jobs_at_once": jobs, "alone": speed}


if __name__ == "__main__":
    given = {"sets": "pcb,animals", "seeds": "0,1", "jobs": "4"} | dict(argument.split("=", 1) for argument in sys.argv[2:])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(json.dumps({"bench": "reference", "device": device, "torch": torch.__version__, **main(Path(sys.argv[1]), given)}))

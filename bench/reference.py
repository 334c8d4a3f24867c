"""Train the sets that the reference figures name and print JSON.

python bench/reference.py DATA_FOLDER [sets=pcb,animals] [seeds=0,1] [jobs=4] [alone=true] [key=value of train ...]

DATA_FOLDER holds one data set a folder; `sets` are rows of SETS. `jobs` trainings share the device; then, unless `alone=false`, one alone,
six epochs of pcb at batch 64, gives images a second. Any other word goes to every training, for ablations. Beside each figure stands what
the most used package reached with the same data, epochs, size and batch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Row:
    """A training whose reference figure is known."""

    model: str
    data: str  # below DATA_FOLDER
    epochs: int
    imgsz: int
    batch: int
    reference: dict[str, float]  # of its default path, the one with suppression, one seed
    images_per_s: float | None = None  # of the reference, with other jobs on its device where the README of the figures says so


SETS = {
    "pcb": Row("detect-n", "pcb/data.yaml", 60, 640, 32, {"box/ap": 0.596, "box/ap50": 0.911, "box/ap75": 0.696}),
    "animals": Row("detect-n", "animals/data.yaml", 40, 416, 64, {"box/ap": 0.075, "box/ap50": 0.139, "box/ap75": 0.075}),
    "nuclei": Row("segment-n", "nuclei", 50, 640, 16, {"mask/ap": 0.507, "mask/ap50": 0.754, "mask/ap75": 0.581, "box/ap": 0.531}, 73),
    "aerial": Row("obb-n", "aerial", 30, 640, 32, {"obb/ap": 0.44, "obb/ap50": 0.65}, 262),
    "animals-pose": Row("pose-n", "animals", 40, 416, 64, {"pose/ap": 0.070, "pose/ap50": 0.200, "box/ap": 0.200}, 292),
    "mouse": Row("pose-n", "mouse", 150, 416, 16, {"pose/ap": 0.242, "pose/ap50": 0.864, "box/ap": 0.593}, 64),
}
ALONE = {"epochs": "6", "imgsz": "640", "batch": "64", "val_every": "100", "plots": "false"}
REFERENCE_SPEED = 580  # images a second of the same training alone on an H200
OWN = {"sets": "pcb,animals", "seeds": "0,1", "jobs": "4", "alone": "true"}


def train(model: str, data: Path, name: str, workers: int, **settings: str) -> dict:
    """Run `pellucid train` and return what it prints at the end."""
    given = {"model": model, "data": data, "cache": "ram", "workers": workers, "name": name, "json": "true", **settings}
    with tempfile.TemporaryDirectory() as project:
        words = [f"{key}={value}" for key, value in {**given, "project": project}.items()]
        done = subprocess.run([sys.executable, "-m", "pellucid", "train", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr[-2000:]}
    return json.loads(done.stdout.splitlines()[-1])


def accuracy(folder: Path, name: str, seed: str, workers: int, settings: dict[str, str]) -> dict:
    """Both paths of one training."""
    row = SETS[name]
    own = {"epochs": str(row.epochs), "imgsz": str(row.imgsz), "batch": str(row.batch), "val_every": "20", **settings}
    result = train(row.model, folder / row.data, f"{name}{seed}", workers, seed=seed, **own)
    head = {
        "set": name,
        "model": row.model,
        "seed": int(seed),
        **own,
        "reference": row.reference,
        "reference_images_per_s": row.images_per_s,
    }
    print(f"{name} seed {seed}: {result.get('error') or result['best']}", file=sys.stderr, flush=True)
    if "error" in result:
        return {**head, "error": result["error"]}
    shown = [metric for metric in result["scores"]["e2e"] if metric.endswith(("/ap", "/ap50", "/ap75"))]
    scores = {path: {metric: result["scores"][path][metric] for metric in shown} for path in ("e2e", "nms")}
    return {**head, **scores, "protocol": result["scores"]["protocol"], **{key: result[key] for key in ("best", "images_per_s", "wall_s")}}


def main(folder: Path, options: dict[str, str]) -> dict:
    own = OWN | {key: options.pop(key) for key in OWN if key in options}
    jobs = int(own["jobs"])
    work = [(name, seed) for seed in own["seeds"].split(",") for name in own["sets"].split(",")]
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(lambda item: accuracy(folder, *item, workers=max(1, 14 // jobs), settings=options), work))
    found = {"trainings": runs, "jobs_at_once": jobs, "settings": options}
    if own["alone"] != "true":
        return found
    alone = train(SETS["pcb"].model, folder / SETS["pcb"].data, "alone", 14, **ALONE)
    return {**found, "alone": {**ALONE, "images_per_s": alone["images_per_s"], "ratio": alone["images_per_s"] / REFERENCE_SPEED}}


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[2:])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(json.dumps({"bench": "reference", "device": device, "torch": torch.__version__, **main(Path(sys.argv[1]), given)}))

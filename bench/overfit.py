"""Memorise pictures: `python bench/overfit.py task=detect data=SET [pictures=100] [epochs=150] [imgsz=320] [model=detect-n]`; JSON.

Trains without augmentation on the first pictures of the training split and counts the objects found again: right class, IoU at least 0.5,
score at least 0.25, one-to-one branch, each prediction used once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
import yaml

from pellucid.config import TrainConfig
from pellucid.data import open_dataset
from pellucid.data.index import Index
from pellucid.geometry.boxes import pairwise_iou
from pellucid.predict import predict
from pellucid.train.run import train
from pellucid.zoo import load_weights

DEFAULTS = {"task": "detect", "data": "trees", "pictures": "100", "epochs": "150", "imgsz": "320", "batch": "16", "seed": "0"}
GOAL = {"detect": ("recall", 0.95)}


def small_set(data: str, pictures: int, folder: Path) -> tuple[Path, Index]:
    """A YOLO data set of links to the first pictures, which are its training and its validation split; and its Index."""
    whole = open_dataset(data, splits=("train",))
    index = whole.splits["train"].take(range(min(pictures, len(whole.splits["train"]))))
    for name in ("images", "labels"):
        (folder / name).mkdir()
    for row in range(len(index)):
        height, width = index.sizes[row].tolist()
        objects, path = index.instances(row), index.path(row)
        (folder / "images" / f"{row:04d}{path.suffix}").symlink_to(path.resolve())
        centres = [
            ((a + c) / 2 / width, (b + d) / 2 / height, (c - a) / width, (d - b) / height)
            for a, b, c, d in objects.shapes["boxes"].data.tolist()
        ]
        rows = [f"{label} " + " ".join(map(str, box)) for label, box in zip(objects.labels.tolist(), centres, strict=True)]
        (folder / "labels" / f"{row:04d}.txt").write_text("\n".join(rows))
    content = {"path": str(folder), "train": "images", "val": "images", "names": list(whole.names)}
    (folder / "data.yaml").write_text(yaml.safe_dump(content))
    return folder / "data.yaml", open_dataset(folder / "data.yaml", splits=("train",)).splits["train"]


def recall(weights: Path, index: Index) -> tuple[float, float]:
    """Share of objects found, and of predictions that found one."""
    model, card = load_weights(weights)
    found = predicted = 0
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results = predict(model, card, [index.path(row) for row in range(len(index))], conf=0.25, device=device)
    for row, result in enumerate(results):
        objects = index.instances(row)
        boxes, classes = torch.as_tensor(result.boxes.xyxy), torch.as_tensor(result.boxes.cls)
        free = torch.ones(len(boxes), dtype=torch.bool)
        predicted += len(boxes)
        for label, box in zip(objects.labels, objects.shapes["boxes"].data, strict=True):
            overlap = pairwise_iou(box[None], boxes.float())[0] * free * (classes == index.category_ids[label])
            if len(overlap) and overlap.max() >= 0.5:
                found += 1
                free[overlap.argmax()] = False
    return found / len(index.labels), found / max(predicted, 1)


def main(options: dict[str, str]) -> dict:
    task, (metric, goal) = options["task"], GOAL[options["task"]]
    with tempfile.TemporaryDirectory() as folder:
        data, index = small_set(options["data"], int(options["pictures"]), Path(folder))
        numbers = {name: int(options[name]) for name in ("epochs", "imgsz", "batch", "seed")}
        model = options.get("model", f"{task}-n")
        config = TrainConfig(
            model=model, data=str(data), preset="off", nbs=1, cache="ram", val_every=1000, plots=False, workers=2, project=folder, **numbers
        )
        result = train(config)
        value, precision = recall(result.run_dir / "weights" / "best.safetensors", index)
    figures = {
        "objects": len(index.labels),
        metric: round(value, 4),
        "precision": round(precision, 4),
        "goal": goal,
        "reached": value >= goal,
    }
    return {"bench": "overfit", **options, "model": model, **figures, "images_per_s": result.images_per_s, "wall_s": result.wall_s}


if __name__ == "__main__":
    outcome = main(DEFAULTS | dict(argument.split("=", 1) for argument in sys.argv[1:]))
    print(json.dumps(outcome))
    sys.exit(not outcome["reached"])

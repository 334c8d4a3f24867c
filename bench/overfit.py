"""Memorise pictures: `python bench/overfit.py task=detect|segment|pose|obb [data=SET] [pictures=100] [seeds=0,1] [key=value of train ...]`.

Trains without augmentation on the first pictures of the training split and looks for their objects again, end to end; prints JSON.
recall: objects found with the right class, IoU at least 0.5 and score at least 0.25, each prediction used once. mask_iou: mean over the
objects of the overlap of outlines with the prediction used for each, 0 where there is none. The others are scores as of `pellucid val`.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch

from pellucid.cli import read_settings
from pellucid.config import TrainConfig, merged
from pellucid.data import open_dataset
from pellucid.data.index import DataSet, Index
from pellucid.geometry.boxes import pairwise_iou
from pellucid.predict import predict
from pellucid.tasks import TASKS
from pellucid.train.run import train
from pellucid.types import Instances
from pellucid.zoo import load_weights

GOALS = {  # sample that ships, figure, goal, seeds
    "detect": ("trees", "recall", 0.95, "0"),
    "segment": ("nuclei", "mask_iou", 0.80, "0"),
    "pose": ("quokka", "pose/ap", 0.60, "0,1,2,3,4"),
    "obb": ("nuclei-obb", "obb/ap50", 0.90, "0"),
}
OWN = {"task": "detect", "pictures": "100"}
TRAIN = {"epochs": "150", "imgsz": "320", "batch": "16", "preset": "off", "nbs": "1", "cache": "ram", "plots": "false", "workers": "2"}


def remembered(data: str, task: str, pictures: int) -> DataSet:
    """A data set whose training and validation split are the first pictures of the training split of `data`."""
    whole = open_dataset(data, needs=TASKS[task]().needs, splits=("train",))
    index = whole.splits["train"]
    index = index.take(range(min(pictures, len(index))))
    return replace(whole, splits={"train": index, "val": index})


def filled(objects: Instances, height: int, width: int) -> torch.Tensor | None:
    """The pixels of each object (n, height, width) bool, where it has an outline or a mask."""
    shapes = objects.shapes
    if "masks" in shapes:
        return shapes["masks"].dense(height, width)
    return shapes["polygons"].rasterise(height, width) if "polygons" in shapes else None


def look_again(weights: Path, index: Index) -> dict[str, float]:
    """recall, precision, and mean overlap of the objects with what was found of them."""
    model, card = load_weights(weights)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results = predict(model, card, [index.path(row) for row in range(len(index))], conf=0.25, device=device)
    best, hits, predicted = [], 0, 0
    for row, result in enumerate(results):
        truth, found = index.instances(row), result.instances
        truth = truth if truth.ignore is None else truth[~truth.ignore]
        boxes = pairwise_iou(truth.shapes["boxes"].data, found.shapes["boxes"].bounds().float())
        ours, theirs = (filled(each, *index.sizes[row].tolist()) for each in (found, truth))
        free = torch.ones(len(found), dtype=torch.bool)
        predicted += len(found)
        for position, label in enumerate(truth.labels):
            usable = boxes[position] * free * (found.labels == label)
            choice = int(usable.argmax()) if len(usable) else 0
            hit = bool(len(usable)) and bool(usable[choice] >= 0.5)
            hits += hit
            overlap = float(usable[choice]) if hit else 0.0
            if hit:
                free[choice] = False
            if hit and ours is not None and theirs is not None:
                overlap = float((ours[choice] & theirs[position]).sum() / (ours[choice] | theirs[position]).sum().clamp(min=1))
            best.append(overlap)
    return {"recall": hits / max(len(best), 1), "precision": hits / max(predicted, 1), "mask_iou": statistics.fmean(best or [0.0])}


def run(dataset: DataSet, settings: dict[str, str], folder: str) -> dict[str, float]:
    """One training and its figures."""
    given = {**settings, "val_every": settings["epochs"], "project": folder, "data": str(dataset.source), "exist_ok": "true"}
    config = merged(TrainConfig(), read_settings("train", [f"{key}={value}" for key, value in given.items()]))
    with mock.patch("pellucid.train.run.open_dataset", return_value=dataset):
        result = train(config)
    scores = result.scores.paths["e2e"].metrics if result.scores else {}
    seen = look_again(result.run_dir / "weights" / "best.safetensors", dataset.splits["train"])
    return {**seen, **scores, "images_per_s": result.images_per_s, "wall_s": result.wall_s}


def main(options: dict[str, str]) -> dict:
    task = options.get("task", OWN["task"])
    data, metric, goal, seeds = GOALS[task]
    own = OWN | {"data": data, "seeds": seeds}
    own |= {key: options.pop(key) for key in own if key in options}
    settings = TRAIN | {"model": f"{task}-n"} | options
    dataset = remembered(own["data"], task, int(own["pictures"]))
    with tempfile.TemporaryDirectory() as folder:
        tries = [run(dataset, {**settings, "seed": seed}, folder) for seed in own["seeds"].split(",")]
    values = [each[metric] for each in tries]
    mean = statistics.fmean(values)
    spread = {"values": [round(value, 4) for value in values], "spread": round(max(values) - min(values), 4)}
    means = {key: statistics.fmean(each[key] for each in tries) for key in tries[0]}
    figures = {key: None if math.isnan(value) else round(value, 4) for key, value in means.items()}
    index = dataset.splits["train"]
    head = {"bench": "overfit", **own, **settings, "used": len(index), "objects": int((~index.ignore).sum())}
    return {**head, "metric": metric, "mean": round(mean, 4), **spread, "goal": goal, "reached": mean >= goal, "figures": figures}


if __name__ == "__main__":
    outcome = main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
    print(json.dumps(outcome))
    sys.exit(not outcome["reached"])

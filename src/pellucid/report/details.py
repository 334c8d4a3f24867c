"""What the page tells beside the tables of a run: counts of the data, curves, confusion, examples; kept in details.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config import TrainConfig, ValConfig
from ..data.index import Index, distinct_names
from ..evaluate.confusion import Curves
from ..evaluate.run import PathScores, Scores
from ..train.folder import write_json
from ..zoo import Card
from .examples import write_examples
from .page import make_page
from .parts import LEAST_F1

if TYPE_CHECKING:
    from ..train.run import TrainResult

MOST = 60  # classes whose curves are kept, those with most objects first
GRID = np.linspace(0, 1, 101)
SHOWN_SCORE = 0.25  # of the examples where no threshold is better than another


def report_training(result: TrainResult, config: TrainConfig, card: Card, splits: Mapping[str, Index]) -> None:
    """report.html of a run of training; of an interrupted one with what is there by then."""
    if result.scores is not None:
        told = result.to_dict()
        write_report(result.run_dir, result.scores, splits, "val", _about(config, card, config.imgsz), {**told["best"], **_pace(told)})
    elif (result.run_dir / "results.csv").is_file():
        make_page(result.run_dir)


def report_scoring(folder: Path, scores: Scores, config: ValConfig, card: Card, index: Index) -> None:
    """report.html of a run of val."""
    write_report(folder, scores, {config.split: index}, config.split, _about(config, card, config.imgsz or card.imgsz))


def write_report(
    folder: Path,
    scores: Scores,
    splits: Mapping[str, Index],
    scored: str,
    about: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
) -> Path:
    """details.json, examples/ and report.html of the split `scored`; the page.

    `about`: what the model is, "model", "task", "scale", "imgsz", "data". `training`: "metric", "value", "epoch", "images_per_s", "wall_s".
    """
    path, first = next(iter(scores.paths.items()))
    details: dict[str, Any] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "about": dict(about),
        "names": list(distinct_names(splits[scored].names, splits[scored].category_ids)),
        "splits": {name: counts_of(index) for name, index in splits.items()},
        "scored": scored,
        "path": path,
        "training": dict(training) if training else None,
        **_matched(first),
        "examples": write_examples(folder, first.coco.state(), splits[scored], _threshold(first)),
    }
    write_json(folder / "details.json", details)
    return make_page(folder)


def counts_of(index: Index) -> dict[str, Any]:
    """How many pictures, objects, ignored regions and pictures without objects a split has, and objects by class."""
    held = np.diff(index.start)
    ignored = int(index.ignore.sum())
    counts = index.class_counts().tolist()
    return {
        "images": len(index),
        "objects": len(index.labels) - ignored,
        "ignored": ignored,
        "empty": int((held == 0).sum()),
        "by_class": counts,
    }


def _about(config: Any, card: Card, imgsz: int) -> dict[str, Any]:
    return {"model": config.model, "task": card.task, "scale": card.scale, "imgsz": imgsz, "data": config.data}


def _pace(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in ("images_per_s", "wall_s")}


def _threshold(scores: PathScores) -> float:
    """The threshold of the best mean F1."""
    best, value = scores.curves.best() if scores.curves is not None else (math.nan, 0.0)
    return best if math.isfinite(best) and value >= LEAST_F1 else SHOWN_SCORE


def _matched(scores: PathScores) -> dict[str, Any]:
    if scores.confusion is None or scores.curves is None:
        return {"confusion": None, "curves": None}
    matrix = scores.confusion
    return {
        "confusion": {"counts": matrix.counts.T.tolist(), "conf": matrix.conf, "iou": matrix.iou},
        "curves": _curves(scores.curves, [row["n"] for row in scores.per_class]),
    }


def _curves(curves: Curves, objects: list[int]) -> dict[str, Any]:
    """Precision over recall and F1 over the threshold, on a grid of 101, of the classes with most objects, and their mean over all."""
    known = [label for label in range(len(objects)) if np.isfinite(curves.recall[label]).all()]
    if not known:
        return {"classes": [], "best": None}
    precision = np.stack([at_recall(curves.precision[label], curves.recall[label]) for label in known])
    f1 = np.stack([np.interp(GRID, curves.thresholds, curves.f1[label]) for label in known])
    threshold, value = curves.best()
    kept = sorted(np.argsort([-objects[label] for label in known], kind="stable")[:MOST].tolist())
    rows = [{"class": known[i], "precision": _plain(precision[i]), "f1": _plain(f1[i])} for i in kept]
    mean = {"precision": _plain(np.nan_to_num(precision).mean(0)), "f1": _plain(f1.mean(0))}
    return {"classes": rows, "mean": mean, "known": len(known), "best": {"threshold": threshold, "f1": value}}


def at_recall(precision: np.ndarray, recall: np.ndarray) -> np.ndarray:
    """(101,) the best precision with which at least each share of the objects is found; nan beyond what is ever found."""
    reached = recall[None] >= GRID[:, None] - 1e-12  # (101, T)
    return np.where(reached.any(1), np.where(reached, precision[None], 0).max(1), np.nan)


def _plain(values: np.ndarray) -> list[float | None]:
    return [round(value, 4) if math.isfinite(value) else None for value in values.tolist()]

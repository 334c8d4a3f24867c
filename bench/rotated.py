"""Rotated AP by two overlaps: `python bench/rotated.py MODEL DATA [key=value of val ...]` prints JSON.

The same predictions are compared with the objects by the exact overlap of the rectangles, as `pellucid val` does, and by ProbIoU (arXiv
2106.06072), which forgives errors of sides and angle more: figures by one cannot be set beside figures by the other.
"""

from __future__ import annotations

import json
import sys
import tempfile

import numpy as np
from torch import Tensor

from pellucid import Model
from pellucid.cli import read_settings
from pellucid.evaluate.rotated import Overlaps, score_rboxes
from pellucid.geometry.rboxes import pairwise_rbox_iou, probiou


def pairwise_probiou(a: Tensor, b: Tensor) -> Tensor:
    """ProbIoU (n, m)."""
    return probiou(a[:, None], b[None])


OVERLAPS: dict[str, Overlaps] = {"exact": pairwise_rbox_iou, "probiou": pairwise_probiou}


def figures(precision: np.ndarray) -> dict[str, float]:
    """AP50-95, AP50 and AP75 over classes with objects, all sizes."""
    whole = precision[:, :, :, 0, -1]
    parts = {"ap": whole, "ap50": whole[0], "ap75": whole[5]}
    return {name: round(float(part[part > -1].mean()), 4) for name, part in parts.items()}


def main(model: str, data: str, words: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as project:
        scores = Model(model).validate(data, **{**read_settings("val", words), "plots": False, "save_json": False, "project": project})
    found = {path: part.coco for path, part in scores.paths.items()}
    return {
        path: {name: figures(score_rboxes(metric.index, metric.state(), overlap)["precision"]) for name, overlap in OVERLAPS.items()}
        for path, metric in found.items()
    }


if __name__ == "__main__":
    print(json.dumps({"bench": "rotated", "model": sys.argv[1], "data": sys.argv[2], **main(sys.argv[1], sys.argv[2], sys.argv[3:])}))

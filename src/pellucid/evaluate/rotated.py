"""Scores of rotated boxes: average precision as COCO computes it, with the exact overlap of the rectangles.

IoU 0.50 to 0.95, 101 recall points, areas of the rectangles; difficult objects are crowds: what lies on them counts neither way. All
detections count, not only the best hundred, since aerial images hold more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..geometry.rboxes import RBoxes, pairwise_rbox_iou, rbox_area
from ..types import Instances

if TYPE_CHECKING:
    from ..data.index import Index

Overlaps = Callable[[Tensor, Tensor], Tensor]
THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
RANGES = np.array([[0, 1e10], [0, 32**2], [32**2, 96**2], [96**2, 1e10]])  # square pixels: all, small, medium, large


def encode_rboxes(instances: Instances, size: tuple[int, int]) -> list[dict[str, Any]]:
    """`rbox` (cx, cy, w, h, theta), its four `corners` (8 numbers) and its `area`, in original pixels."""
    rboxes = RBoxes(_rounded(instances))
    areas = rbox_area(rboxes.data).round(decimals=3).tolist()
    rows = zip(rboxes.data.tolist(), rboxes.corners().flatten(1).round(decimals=3).tolist(), areas, strict=True)
    return [{"rbox": rbox, "corners": corners, "area": area} for rbox, corners, area in rows]


def stated_overlap(index: Index) -> str:
    """For the line that states the protocol."""
    return "rotated boxes by the exact overlap of the rectangles, all detections of an image, by this library"


def _rounded(instances: Instances) -> Tensor:
    """Rotated boxes (n, 5) float64 as they are written and scored: to a thousandth of a pixel and a millionth of a radian."""
    data = instances.shapes["rboxes"].data.double()
    return torch.cat((data[:, :4].round(decimals=3), data[:, 4:].round(decimals=6)), 1)


def score_rboxes(index: Index, found: Mapping[int, Instances], overlap: Overlaps = pairwise_rbox_iou) -> dict[str, np.ndarray]:
    """Precision (T, R, classes, areas, 1) and recall (T, classes, areas, 1), classes by the user's id; -1 where there is no ground truth.

    `found` holds the predictions of each image row; rows that are not in it do not count. `overlap` says what is compared with the
    thresholds: (n, 5), (m, 5) -> (n, m).
    """
    rows = sorted(found, key=lambda row: int(index.ids[row]))  # as the COCO tool orders images: it decides between equal scores
    images = [_matches(found[row], index.instances(row), overlap) for row in rows]
    parts = [accumulate([image[label] for image in images if label in image]) for label in np.argsort(index.category_ids)]
    precision, recall = np.stack([part[0] for part in parts], 2), np.stack([part[1] for part in parts], 1)
    return {"precision": precision[..., None], "recall": recall[..., None]}


def _matches(found: Instances, truth: Instances, compare: Overlaps) -> dict[int, Matches]:
    """By class, for the classes that were seen or found on one image."""
    boxes, objects = _rounded(found), _rounded(truth)
    crowd = np.zeros(len(truth), np.bool_) if truth.ignore is None else truth.ignore.numpy()
    overlap = compare(boxes, objects).numpy()
    if crowd.any():
        overlap[:, crowd] = pairwise_rbox_iou(boxes, objects[torch.from_numpy(crowd)], of_first=True).numpy()
    assert found.scores is not None
    scores, found_area, area = found.scores.double().numpy().round(6), rbox_area(boxes).numpy(), rbox_area(objects).numpy()
    labels, classes = found.labels.numpy(), truth.labels.numpy()
    result = {}
    for label in np.union1d(labels, classes).tolist():
        mine, theirs = np.flatnonzero(labels == label), np.flatnonzero(classes == label)
        mine = mine[np.argsort(-scores[mine], kind="stable")]
        result[label] = match(scores[mine], overlap[np.ix_(mine, theirs)], found_area[mine], area[theirs], crowd[theirs])
    return result


@dataclass(frozen=True)
class Matches:
    """The detections of one class on one image, best first, and how many objects they can find."""

    scores: np.ndarray  # (D,)
    hit: np.ndarray  # (areas, thresholds, D) bool: found an object
    free: np.ndarray  # (areas, thresholds, D) bool: counts neither way
    objects: np.ndarray  # (areas,) int64


def match(scores: np.ndarray, overlap: np.ndarray, found_area: np.ndarray, object_area: np.ndarray, crowd: np.ndarray) -> Matches:
    """The COCO rule: in order of score each detection takes the free object that it overlaps most, at least by the threshold.

    Objects that count come before crowds and those outside the range of areas; a crowd can be taken more than once.
    """
    low, high = RANGES[:, :1], RANGES[:, 1:]
    ignored = (object_area < low) | (object_area > high) | crowd  # (areas, G)
    hit = np.zeros((len(RANGES), len(THRESHOLDS), len(scores)), np.bool_)
    outside = (found_area < low) | (found_area > high)
    free = np.repeat(outside[:, None], len(THRESHOLDS), 1)  # what takes nothing and is of another size
    taken = np.zeros((len(RANGES), len(THRESHOLDS), len(crowd)), np.bool_)
    for place in np.flatnonzero((overlap >= THRESHOLDS[0]).any(1)):
        ready = (overlap[place] >= THRESHOLDS[:, None]) & (~taken | crowd)  # (areas, thresholds, G)
        worth = np.where(ready, overlap[place] + 2.0 * ~ignored[:, None], -1.0)
        best = worth.shape[-1] - 1 - worth[..., ::-1].argmax(-1)  # of equals the last
        done = np.take_along_axis(ready, best[..., None], -1)[..., 0]
        hit[..., place] = done
        free[..., place] = np.where(done, np.take_along_axis(ignored, best, 1), free[..., place])
        np.put_along_axis(taken, best[..., None], (np.take_along_axis(taken, best[..., None], -1)[..., 0] | done)[..., None], -1)
    return Matches(scores, hit, free, (~ignored).sum(1))


def accumulate(parts: Sequence[Matches]) -> tuple[np.ndarray, np.ndarray]:
    """Precision (thresholds, recalls, areas) and recall (thresholds, areas) of one class over all images; -1 without an object."""
    precision = np.full((len(THRESHOLDS), len(RECALLS), len(RANGES)), -1.0)
    recall = np.full((len(THRESHOLDS), len(RANGES)), -1.0)
    if not parts:
        return precision, recall
    objects = np.sum([part.objects for part in parts], 0)
    order = np.argsort(-np.concatenate([part.scores for part in parts]), kind="stable")
    hit = np.concatenate([part.hit for part in parts], -1)[..., order]
    free = np.concatenate([part.free for part in parts], -1)[..., order]
    for threshold, area in np.ndindex(recall.shape):
        if objects[area]:
            curve = _curve(hit[area, threshold], free[area, threshold], objects[area])
            precision[threshold, :, area], recall[threshold, area] = curve
    return precision, recall


def _curve(hit: np.ndarray, free: np.ndarray, objects: int) -> tuple[np.ndarray, float]:
    """Best precision at or beyond each of the recall points, and the last recall."""
    right, wrong = np.cumsum(hit & ~free), np.cumsum(~hit & ~free)
    reached = right / objects
    precise = np.maximum.accumulate((right / np.maximum(right + wrong, 1))[::-1])[::-1]
    places = np.searchsorted(reached, RECALLS, side="left")
    return np.append(precise, 0.0)[places], float(reached[-1]) if len(reached) else 0.0

"""Who is taken for whom, and precision, recall and F1 over the score threshold; both by greedy matching, best score first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..geometry.boxes import box_area, pairwise_iou
from ..geometry.rboxes import RBoxes, pairwise_rbox_iou
from ..types import Instances


def match(found: Tensor, iou: Tensor, ignored: Tensor, threshold: float) -> Tensor:
    """For each prediction, best first, the object it takes, -1 for none, -2 where it lies on an ignored region.

    `found` (p,) scores, `iou` (p, n), `ignored` (n,) bool. Each object is taken once, by the best score that overlaps it by at least
    `threshold`; a prediction takes the free object that it overlaps most. An ignored region absorbs any number.
    """
    taken = torch.full((len(found),), -1, dtype=torch.int64)
    if iou.numel() == 0:
        return taken
    free = iou.masked_fill(ignored, -1.0).numpy().copy()  # (p, n)
    order = found.argsort(descending=True, stable=True).numpy()
    for row in order[free[order].max(1) >= threshold]:
        best = free[row].argmax()
        if free[row, best] >= threshold:
            taken[row] = int(best)
            free[:, best] = -1.0
    if bool(ignored.any()):
        on_ignored = (iou[:, ignored] >= threshold).any(1)
        taken[(taken == -1) & on_ignored] = -2
    return taken


def overlaps(found: Instances, truth: Instances, ignored: Tensor) -> Tensor:
    """IoU (p, n), of rotated boxes where both have them; with an ignored region it is the share of the prediction that the region covers,
    as COCO counts crowds.
    """
    turned = [shape.data.double() for part in (found, truth) for shape in part.shapes.values() if isinstance(shape, RBoxes)]
    if len(turned) == 2:
        whole, part = (pairwise_rbox_iou(turned[0], turned[1], of_first) for of_first in (False, True))
        return torch.where(ignored[None], part, whole).float()
    a, b = found.shapes["boxes"].bounds(), truth.shapes["boxes"].bounds()
    low, high = torch.maximum(a[:, None, :2], b[None, :, :2]), torch.minimum(a[:, None, 2:], b[None, :, 2:])
    covered = (high - low).clamp(min=0).prod(-1) / box_area(a)[:, None].clamp(min=1e-9)
    return torch.where(ignored[None], covered, pairwise_iou(a, b))


def ignored_of(truth: Instances) -> Tensor:
    """(n,) bool, all False where the data has no ignored regions."""
    return torch.zeros(len(truth), dtype=torch.bool) if truth.ignore is None else truth.ignore


class ConfusionMatrix:
    """`counts[predicted, true]` over nc classes and, last, the background: a false positive is [class, nc], a miss is [nc, class]."""

    def __init__(self, nc: int, conf: float = 0.25, iou: float = 0.45) -> None:
        self.counts = np.zeros((nc + 1, nc + 1), dtype=np.int64)
        self.conf = conf
        self.iou = iou

    def update(self, found: Instances, truth: Instances) -> None:
        """Add one image; matching does not look at the class. Images without objects count too."""
        assert found.scores is not None
        background = len(self.counts) - 1
        found = found[found.scores >= self.conf]
        assert found.scores is not None
        ignored = ignored_of(truth)
        taken = match(found.scores, overlaps(found, truth, ignored), ignored, self.iou)
        true = torch.full((len(found),), background)
        true[taken >= 0] = truth.labels[taken[taken >= 0]]
        counted = taken != -2
        np.add.at(self.counts, (found.labels[counted].numpy(), true[counted].numpy()), 1)
        missed = ~ignored
        missed[taken[taken >= 0]] = False
        np.add.at(self.counts[background], truth.labels[missed].numpy(), 1)


@dataclass(frozen=True)
class Curves:
    """Precision, recall and F1 of each class at each score threshold, at one IoU; nan for classes without objects."""

    thresholds: np.ndarray  # (T,) from 0 to 1
    precision: np.ndarray  # (classes, T), 1 where nothing is found
    recall: np.ndarray  # (classes, T)

    @property
    def f1(self) -> np.ndarray:
        """(classes, T) harmonic mean of precision and recall."""
        return 2 * self.precision * self.recall / np.maximum(self.precision + self.recall, 1e-12)

    def best(self) -> tuple[float, float]:
        """(threshold, F1) where the mean F1 of the classes that have objects is largest; nan if there is none."""
        known = ~np.isnan(self.recall[:, 0])
        if not known.any():
            return float("nan"), float("nan")
        mean = self.f1[known].mean(0)
        return float(self.thresholds[mean.argmax()]), float(mean.max())


class CurveMeter:
    """Collects matches image by image and gives `Curves`."""

    def __init__(self, nc: int, iou: float = 0.5) -> None:
        self.iou = iou
        self._objects = np.zeros(nc, dtype=np.int64)
        self._scores: list[list[Tensor]] = [[] for _ in range(nc)]
        self._hits: list[list[Tensor]] = [[] for _ in range(nc)]

    def update(self, found: Instances, truth: Instances) -> None:
        """Add one image; a prediction can only take an object of its class."""
        assert found.scores is not None
        ignored = ignored_of(truth)
        iou = overlaps(found, truth, ignored)
        iou = torch.where(found.labels[:, None] == truth.labels[None], iou, torch.zeros(()))
        taken = match(found.scores, iou, ignored, self.iou)
        np.add.at(self._objects, truth.labels[~ignored].numpy(), 1)
        for label in found.labels.unique().tolist():
            rows = (found.labels == label) & (taken != -2)
            self._scores[label].append(found.scores[rows])
            self._hits[label].append(taken[rows] >= 0)

    def compute(self, steps: int = 1001) -> Curves:
        """The curves at `steps` thresholds."""
        thresholds = np.linspace(0, 1, steps)
        rows = [self._class_curve(label, thresholds) for label in range(len(self._objects))]
        precision, recall = (np.stack(part) if part else np.zeros((0, steps)) for part in zip(*rows, strict=True))
        return Curves(thresholds, precision, recall)

    def _class_curve(self, label: int, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not self._objects[label]:
            return np.full(len(thresholds), np.nan), np.full(len(thresholds), np.nan)
        scores = torch.cat([*self._scores[label], torch.zeros(0)]).double().numpy()
        hits = torch.cat([*self._hits[label], torch.zeros(0, dtype=torch.bool)]).numpy()
        order = np.argsort(-scores, kind="stable")
        hit_count = np.concatenate(([0], hits[order].cumsum()))  # hits among the n best
        above = np.searchsorted(-scores[order], -thresholds, side="right")  # how many are at or above each threshold
        precision = np.where(above > 0, hit_count[above] / np.maximum(above, 1), 1.0)
        return precision, hit_count[above] / self._objects[label]

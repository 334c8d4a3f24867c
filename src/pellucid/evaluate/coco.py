"""COCO scores: objects and predictions as COCO records under the user's own ids, scored by faster-coco-eval.

The records that are scored are the records that are written, number for number, so that any other tool gets the same figure from the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from faster_coco_eval import COCO, COCOeval_faster

from ..errors import DataError, UsageError
from ..types import Instances, Prediction
from .masks import Size, encode_masks, hold_masks, mask_areas, own_areas
from .points import area_note, encode_keypoints, keypoint_arguments, stated_sigmas
from .rotated import encode_rboxes, score_rboxes, stated_overlap

if TYPE_CHECKING:
    from ..data.index import Index

Record = dict[str, Any]
BEST = 100  # detections of one class on one image that the protocol looks at
AREAS = {"ap_s": 1, "ap_m": 2, "ap_l": 3}  # below 32^2, below 96^2, the rest; 0 is all
POINT_AREAS = {"ap_m": 1, "ap_l": 2}


def box_areas(records: list[Record]) -> list[float]:
    """Square pixels of the box of each record."""
    return [record["bbox"][2] * record["bbox"][3] for record in records]


@dataclass(frozen=True)
class Kind:
    """How one kind of shape is written and scored: `encode(objects, (height, width))` gives the COCO fields of each object."""

    coco: str  # iouType of the COCO tools
    encode: Callable[[Instances, Size], list[Record]]
    score: Callable[[Index, Mapping[int, Instances]], Record] | None = None  # in place of the COCO tool, over all detections
    hold: Callable[[Instances, Size], Instances] | None = None  # what is kept of predictions until they are scored, if less
    told: Callable[[Index], Mapping[str, Any]] = lambda index: {}  # arguments of the COCO tool that the data decide
    areas: Mapping[str, int] = field(default_factory=lambda: AREAS)  # places of the size ranges on the tool's axis
    measure: Callable[[list[Record]], list[float]] = box_areas  # of predictions, for the size ranges
    recall: str = "ar100"  # name of the average recall, by the detections of an image that count
    states: Callable[[Index], str] = lambda index: ""  # for the line that states the protocol
    note: Callable[[Index, list[int]], str | None] = lambda index, rows: None  # a sentence about the ground truth of some rows

    def counts(self, truth: Record) -> bool:
        """Whether an object of the ground truth counts, or is ignored: a crowd, or one without a labelled point."""
        return not truth["iscrowd"] and (self.coco != "keypoints" or truth["num_keypoints"] > 0)


def encode_boxes(instances: Instances, size: Size) -> list[Record]:
    """`bbox` as x, y, width, height in original pixels, to a thousandth of a pixel."""
    xyxy = instances.shapes["boxes"].bounds().double().numpy()
    xywh = np.concatenate((xyxy[:, :2], xyxy[:, 2:] - xyxy[:, :2]), 1)
    return [{"bbox": row} for row in xywh.round(3).tolist()]


METRICS: dict[str, Kind] = {
    "box": Kind("bbox", encode_boxes),
    "mask": Kind("segm", encode_masks, hold=hold_masks, measure=mask_areas),
    "pose": Kind(
        "keypoints", encode_keypoints, told=keypoint_arguments, areas=POINT_AREAS, recall="ar20", states=stated_sigmas, note=area_note
    ),
    "obb": Kind("", encode_rboxes, score_rboxes, recall="ar", states=stated_overlap),
}


class CocoMetric:
    """COCO average precision of the predictions of one data set.

    Only images given to `update` are counted, each once: a partial pass scores its part, and the written ground truth holds that part.
    """

    def __init__(self, index: Index, kinds: Sequence[str] = ("box",)) -> None:
        """`kinds` are names of `METRICS`; DataError where two images share an id."""
        if unknown := [kind for kind in kinds if kind not in METRICS]:
            raise UsageError(f"metrics must be among {', '.join(METRICS)}, got {', '.join(unknown)}")
        if len(np.unique(index.ids)) != len(index):
            raise DataError(
                f"images of one split need different ids, got {len(index)} images with {len(np.unique(index.ids))} ids; renumber them"
            )
        self.index = index
        self.kinds = tuple(kinds)
        self._found: dict[int, Instances] = {}
        self._scored: dict[str, Record] = {}

    def update(self, predictions: Sequence[Prediction]) -> None:
        """Add the predictions of some images (original pixels); an image given twice, as by a padded distributed loader, counts once."""
        self.merge([{prediction.meta.row: self._held(prediction) for prediction in predictions}])

    def state(self) -> Mapping[int, Instances]:
        """What was seen so far, by image row, to be gathered from other processes."""
        return self._found

    def merge(self, states: Sequence[Mapping[int, Instances]]) -> None:
        """Add what other processes saw."""
        for state in states:
            self._found.update(state)
        self._scored.clear()

    def compute(self) -> dict[str, float]:
        """{"box/ap", "box/ap50", "box/ap75", "box/ap_s", "box/ap_m", "box/ap_l", "box/ar100"} for each kind; nan without ground truth.

        Points have no small objects, and the best 20 detections of a class on an image count: "pose/ar20".
        """
        result: dict[str, float] = {}
        for kind in self.kinds:
            scored = self._score(kind)
            precision, recall = scored["precision"], scored["recall"]  # (T, R, classes, areas, maxDets), (T, classes, areas, maxDets)
            result[f"{kind}/ap"] = _mean(precision[:, :, :, 0, -1])
            result[f"{kind}/ap50"] = _mean(precision[0, :, :, 0, -1])
            result[f"{kind}/ap75"] = _mean(precision[5, :, :, 0, -1])
            for name, area in METRICS[kind].areas.items():
                result[f"{kind}/{name}"] = _mean(precision[:, :, :, area, -1])
            result[f"{kind}/{METRICS[kind].recall}"] = _mean(recall[:, :, 0, -1])
        return result

    def per_class(self, kind: str | None = None) -> list[Record]:
        """One {name, id, n, ap, ap50} for each class, n = objects that count; nan where a class has none. None: the first kind."""
        kind = kind or self.kinds[0]
        precision = self._score(kind)["precision"]
        counted = [self._class_of[a["category_id"]] for a in self.ground_truth()["annotations"] if METRICS[kind].counts(a)]
        counts = np.bincount(np.array(counted, np.int64), minlength=len(self.index.names))
        order = np.argsort(self.index.category_ids)  # the tool's class axis runs by the user's id
        table: list[Record] = [{} for _ in order]
        for column, label in enumerate(order):
            table[label] = {
                "name": self.index.names[label],
                "id": int(self.index.category_ids[label]),
                "n": int(counts[label]),
                "ap": _mean(precision[:, :, column, 0, -1]),
                "ap50": _mean(precision[0, :, column, 0, -1]),
            }
        return table

    def predictions(self) -> list[Record]:
        """COCO results in the order of the images, with the user's image and category ids."""
        return [record for row in sorted(self._found) for record in self._records(row, self._found[row])]

    def ground_truth(self) -> Record:
        """The COCO data set of the images seen: crowd regions as iscrowd, area as given by the user, else of the box."""
        rows = sorted(self._found)
        annotations = [record for row in rows for record in self._truth(row)]
        return {
            "images": [self._image(row) for row in rows],
            "categories": [{"id": int(i), "name": name} for i, name in zip(self.index.category_ids, self.index.names, strict=True)],
            "annotations": [{"id": number, **record} for number, record in enumerate(annotations, 1)],
        }

    def notes(self) -> list[str]:
        """Sentences about the ground truth that a reader of the scores should know."""
        found = [METRICS[kind].note(self.index, sorted(self._found)) for kind in self.kinds]
        return [note for note in found if note is not None]

    def write(self, path: str | Path) -> Path:
        """Write `predictions()` as a COCO results file."""
        return _dump(self.predictions(), Path(path))

    def write_ground_truth(self, path: str | Path) -> Path:
        """Write `ground_truth()` as a COCO annotation file."""
        return _dump(self.ground_truth(), Path(path))

    def _held(self, prediction: Prediction) -> Instances:
        instances, size = prediction.instances, (prediction.meta.height, prediction.meta.width)
        for hold in (METRICS[kind].hold for kind in self.kinds):
            instances = instances if hold is None else hold(instances, size)
        return instances

    @property
    def _class_of(self) -> dict[int, int]:
        return {int(i): label for label, i in enumerate(self.index.category_ids)}

    def _records(self, row: int, instances: Instances) -> list[Record]:
        labels, scores = instances.labels.tolist(), _written_scores(instances).tolist()
        image, ids = int(self.index.ids[row]), self.index.category_ids
        heads = [{"image_id": image, "category_id": int(ids[label]), "score": score} for label, score in zip(labels, scores, strict=True)]
        return [dict(head, **fields) for head, fields in zip(heads, self._encode(instances, row), strict=True)]

    def _truth(self, row: int) -> list[Record]:
        instances = self.index.instances(row)
        crowd = [False] * len(instances) if instances.ignore is None else instances.ignore.tolist()
        areas = _areas(self.index, row, instances)
        image, ids = int(self.index.ids[row]), self.index.category_ids
        records = []
        for label, ignored, area, fields in zip(instances.labels.tolist(), crowd, areas, self._encode(instances, row), strict=True):
            records.append({"image_id": image, "category_id": int(ids[label]), "iscrowd": int(ignored), "area": area, **fields})
        return records

    def _encode(self, instances: Instances, row: int) -> list[Record]:
        parts = [METRICS[kind].encode(instances, _size(self.index, row)) for kind in dict.fromkeys(("box", *self.kinds))]
        if len(parts) == 1:
            return parts[0]
        return [{key: value for part in row for key, value in part.items()} for row in zip(*parts, strict=True)]

    def _image(self, row: int) -> Record:
        height, width = _size(self.index, row)
        return {"id": int(self.index.ids[row]), "file_name": self.index.path(row).name, "height": height, "width": width}

    def _score(self, kind: str) -> Record:
        """The accumulated arrays of the COCO tool; all -1 where there is no ground truth."""
        if kind in self._scored:
            return self._scored[kind]
        if (score := METRICS[kind].score) is not None:
            self._scored[kind] = score(self.index, self._found)
            return self._scored[kind]
        truth = self.ground_truth()
        found = [record for row in sorted(self._found) for record in self._records(row, _best(self._found[row]))]
        for number, (record, area) in enumerate(zip(found, METRICS[kind].measure(found), strict=True), 1):
            record.update(id=number, area=area, iscrowd=0)
        told = METRICS[kind].told(self.index)
        tool = COCOeval_faster(
            _as_coco(truth), _as_coco({**truth, "annotations": found}), METRICS[kind].coco, print_function=_silent, **told
        )
        tool.params.catIds = sorted(int(i) for i in self.index.category_ids)  # all of them, for points too
        tool.evaluate()
        tool.accumulate()
        self._scored[kind] = tool.eval
        return self._scored[kind]


def _best(instances: Instances) -> Instances:
    """The objects that the protocol looks at: the BEST of each class, in the order given."""
    labels = instances.labels.numpy()
    if np.bincount(labels, minlength=1).max() <= BEST:
        return instances
    order = np.argsort(-_written_scores(instances), kind="stable")
    keep = [order[labels[order] == label][:BEST] for label in np.unique(labels)]
    return instances[torch.from_numpy(np.sort(np.concatenate(keep)))]


def _written_scores(instances: Instances) -> np.ndarray:
    """Scores to a millionth, as they are scored and written."""
    assert instances.scores is not None
    return instances.scores.double().numpy().round(6)


def _areas(index: Index, row: int, instances: Instances) -> list[float]:
    """The areas that the user's file states; of the object's mask, or else of its box, where it states none."""
    given = [0.0] * len(instances)
    if "area" in index.columns:
        start, end = index.start[row : row + 2]
        given = np.asarray(index.columns["area"].values)[start:end].reshape(-1).tolist()
    if all(area > 0 for area in given):
        return given
    return [area if area > 0 else own for area, own in zip(given, own_areas(instances, _size(index, row)), strict=True)]


def _size(index: Index, row: int) -> Size:
    height, width = index.sizes[row].tolist()
    return height, width


def _as_coco(dataset: Record) -> COCO:
    coco = COCO()
    coco.dataset = dataset
    coco.createIndex()
    return coco


def _mean(values: np.ndarray) -> float:
    """Mean over what is defined (the tool marks the rest with -1), nan if nothing is."""
    values = values[values > -1]
    return float(values.mean()) if values.size else float("nan")


def _silent(*_: object) -> None:
    """The tool's own talk is not ours."""


def _dump(content: object, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path

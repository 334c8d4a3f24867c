"""OKS AP: as pycocotools computes it from our files, for any number of points, whatever the data say about areas."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pellucid.data.index import IndexBuilder
from pellucid.evaluate import CocoMetric
from pellucid.evaluate.points import sigmas_of, stated_sigmas
from pellucid.geometry import Boxes
from pellucid.geometry.keypoints import Keypoints, KeypointSpec
from pellucid.types import ImageMeta, Instances, Prediction

NAMES, IDS = ("cat", "dog"), (9, 4)
PLACES = {"ap": 0, "ap50": 1, "ap75": 2, "ap_m": 3, "ap_l": 4, "ar20": 5}


def scene(k: int, seed: int = 0, images: int = 10, area: str = "stated", labelled: bool = True):
    """An Index with crowds, empty images and, unless `labelled`, nothing but objects without a labelled point."""
    draw = np.random.default_rng(seed)
    columns = ("keypoints", "area") if area != "absent" else ("keypoints",)
    builder = IndexBuilder(Path("/zoo"), columns, KeypointSpec.make(k))
    for row in range(images):
        builder.image(f"/zoo/{row}.jpg", (480, 640), 100 - row)
        for _ in range(0 if row == 3 else draw.integers(1, 5)):
            corner, side = draw.uniform(0, 300, 2), draw.uniform(30, 170, 2)
            seen = draw.integers(0, 3, (k, 1)) if labelled and draw.random() < 0.8 else np.zeros((k, 1))
            points = np.concatenate((corner + draw.uniform(0, 1, (k, 2)) * side, seen), 1) * (seen > 0)
            own = {"area": [0.7 * side.prod() if area == "stated" else 0]} if area != "absent" else {}
            crowd = bool(draw.random() < 0.2)
            builder.object(int(draw.integers(2)), [*corner, *(corner + side)], crowd, keypoints=points.ravel(), **own)
    return builder.build(NAMES, IDS)


def found(index, noise: float, seed: int = 1, copies: int = 1) -> list[Prediction]:
    """The ground truth as predictions, moved by `noise` pixels, several times over with falling scores."""
    draw = torch.Generator().manual_seed(seed)
    predictions = []
    for row in range(len(index)):
        truth = index.instances(row)
        whole = Instances.cat([truth] * copies)
        n = len(whole)
        points, boxes = whole.shapes["keypoints"].data, whole.shapes["boxes"].data
        centres = ((boxes[:, :2] + boxes[:, 2:]) / 2)[:, None]
        points[..., :2] = torch.where(points[..., 2:] > 0, points[..., :2], centres)  # where nothing is labelled, something is found
        points = points + torch.randn(n, index.keypoints.points, 3, generator=draw) * torch.tensor([noise, noise, 0])
        points[..., 2] = torch.rand(n, index.keypoints.points, generator=draw)
        boxes = boxes + torch.randn(n, 4, generator=draw) * noise
        shapes = {"boxes": Boxes(boxes), "keypoints": Keypoints(points, predicted=True)}
        scores = (torch.rand(n, generator=draw) * 30).round() / 30 if noise else torch.ones(n)
        height, width = index.sizes[row].tolist()
        meta = ImageMeta(row, int(index.ids[row]), str(index.path(row)), height, width)
        predictions.append(Prediction(meta, Instances(whole.labels, shapes, scores)))
    return predictions


def metric_of(index, *args, **kwargs) -> CocoMetric:
    metric = CocoMetric(index, ("pose", "box"))
    metric.update(found(index, *args, **kwargs))
    return metric


def rescored(metric, folder, kind: str, sigmas) -> COCOeval:
    truth = COCO(str(metric.write_ground_truth(folder / "truth.json")))
    tool = COCOeval(truth, truth.loadRes(str(metric.write(folder / "predictions.json"))), kind)
    if kind == "keypoints":
        tool.params.kpt_oks_sigmas = np.array(sigmas)
    tool.evaluate()
    tool.accumulate()
    tool.summarize()
    return tool


@pytest.mark.parametrize(("k", "seed"), [(17, 0), (5, 1), (1, 2), (20, 3)])
def test_the_files_rescored_by_pycocotools_give_the_printed_figures(k, seed, tmp_path):
    index = scene(k, seed)
    metric = metric_of(index, 6.0, copies=8)  # more than 20 of a class on an image
    scores = metric.compute()
    keypoints = np.stack([index.columns["keypoints"][i] for i in range(len(index.labels))])
    assert (keypoints.reshape(-1, k, 3)[..., 2].max(1) == 0).any()  # an object without a labelled point
    assert index.ignore.any()
    assert 0.02 < scores["pose/ap"] < 0.98
    tool = rescored(metric, tmp_path, "keypoints", sigmas_of(index))
    for name, place in PLACES.items():
        theirs = np.nan if tool.stats[place] == -1 else tool.stats[place]
        assert scores[f"pose/{name}"] == pytest.approx(theirs, abs=1e-6, nan_ok=True), name
    box = rescored(metric, tmp_path, "bbox", None)
    assert scores["box/ap"] == pytest.approx(box.stats[0], abs=1e-6)
    assert next(iter(scores)) == "pose/ap"


@pytest.mark.parametrize("k", [1, 4, 5, 17, 20])
@pytest.mark.parametrize("area", ["stated", "zero", "absent"])
def test_perfect_predictions_score_1_whatever_the_number_of_points_and_the_areas(k, area):
    index = scene(k, area=area)
    metric = metric_of(index, 0.0)
    scores = metric.compute()
    assert scores["pose/ap"] == scores["pose/ar20"] == 1
    assert scores["box/ap"] == 1
    objects = int((~index.ignore).sum())
    expected = [] if area == "stated" else [f"OKS takes the area of the box for {objects} of {objects} objects, which state none"]
    assert metric.notes() == expected


def test_objects_without_a_labelled_point_do_not_count():
    index = scene(5)
    metric = metric_of(index, 0.0)
    table = metric.per_class()
    labelled = np.array([index.columns["keypoints"][i][2::3].max() > 0 for i in range(len(index.labels))]) & ~index.ignore
    assert 0 < labelled.sum() < (~index.ignore).sum()
    assert [row["n"] for row in table] == np.bincount(index.labels[labelled], minlength=2).tolist()
    assert [row["n"] for row in metric.per_class("box")] == index.class_counts().tolist()
    assert all(row["ap"] == 1 for row in table)


def test_without_any_labelled_point_the_score_is_undefined():
    scores = metric_of(scene(5, labelled=False), 0.0).compute()
    assert np.isnan(scores["pose/ap"])
    assert scores["box/ap"] == 1


def test_sigmas_are_those_of_the_data_and_are_stated():
    index = scene(4)
    assert stated_sigmas(index) == "OKS sigma 0.25 for each of 4 points"
    assert stated_sigmas(scene(17)).startswith("OKS sigmas 0.026, 0.025, 0.025, 0.035")
    loose, strict = (CocoMetric(with_sigmas(index, sigma), ("pose",)) for sigma in (0.5, 0.01))
    for metric in (loose, strict):
        metric.update(found(index, 4.0))
    assert loose.compute()["pose/ap"] > 0.5
    assert strict.compute()["pose/ap"] < 0.2


def with_sigmas(index, sigma: float):
    return replace(index, keypoints=KeypointSpec.make(index.keypoints.points, sigmas=[sigma] * index.keypoints.points))

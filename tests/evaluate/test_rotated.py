"""Scores of rotated boxes: against pycocotools with overlaps by shapely, and against the scores of upright boxes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pellucid.data.index import IndexBuilder
from pellucid.evaluate.coco import CocoMetric
from pellucid.evaluate.rotated import score_rboxes
from pellucid.geometry import Boxes
from pellucid.geometry.rboxes import RBoxes, rbox_bounds
from pellucid.types import ImageMeta, Instances, Prediction

from .fakes import CATEGORY_IDS, NAMES, random_case


def make_index(images, ids=None):
    """`images`: for each a list of (label, rbox, difficult)."""
    builder = IndexBuilder(Path("/air"), ("rboxes",))
    for row, objects in enumerate(images):
        builder.image(f"/air/{row}.png", (480, 640), None if ids is None else ids[row])
        for label, rbox, difficult in objects:
            bounds = rbox_bounds(torch.tensor(rbox)[None])[0].tolist()
            builder.object(label, bounds, bool(difficult), rboxes=rbox)
    return builder.build(NAMES, CATEGORY_IDS)


def prediction(index, row, labels=(), rboxes=(), scores=()):
    data = torch.as_tensor(rboxes, dtype=torch.float32).reshape(-1, 5)
    shapes = {"boxes": Boxes(rbox_bounds(data)), "rboxes": RBoxes(data)}
    found = Instances(torch.as_tensor(labels, dtype=torch.int64), shapes, torch.as_tensor(scores, dtype=torch.float32))
    return Prediction(ImageMeta(row, int(index.ids[row]), str(index.path(row)), 480, 640), found)


def random_scene(seed, images=10, found=60):
    generator = torch.Generator().manual_seed(seed)

    def rand(*size):
        return torch.rand(*size, generator=generator)

    scenes, predictions = [], []
    for row in range(images):
        count = 0 if row % 5 == 3 else int(torch.randint(1, 9, (1,), generator=generator))
        objects = torch.cat((rand(count, 2) * 400 + 40, 6 + 180 * rand(count, 2) ** 2, rand(count, 1) * 3), 1)
        labels = torch.randint(0, 3, (count,), generator=generator)
        difficult = rand(count) < 0.2
        scenes.append(list(zip(labels.tolist(), objects.tolist(), difficult.tolist(), strict=True)))
        pick = torch.randint(0, max(count, 1), (found,), generator=generator)
        near = objects[pick] if count else torch.tensor([90.0, 90, 40, 20, 0.4]).repeat(found, 1)
        spread = torch.tensor([6.0, 6, 8, 8, 0.2]) * rand(found, 1)
        near = near + torch.randn(found, 5, generator=generator) * spread
        near[:, 2:4] = near[:, 2:4].clamp(min=2)
        kinds = labels[pick] if count else torch.randint(0, 3, (found,), generator=generator)
        predictions.append((kinds, near, (rand(found) * 60).round() / 60))
    index = make_index(scenes, ids=[1000 - 7 * row for row in range(images)])
    return index, [prediction(index, row, *parts) for row, parts in enumerate(predictions)]


def scored(index, predictions):
    metric = CocoMetric(index, ("obb",))
    metric.update(predictions)
    return metric


class ByShapely(COCOeval):
    """The COCO tool with the overlap of the written corners."""

    def computeIoU(self, image, category):
        truth, found = self._gts[image, category], self._dts[image, category]
        order = np.argsort([-d["score"] for d in found], kind="mergesort")
        found = [found[i] for i in order[: self.params.maxDets[-1]]]
        if not truth or not found:
            return []
        from shapely.geometry import Polygon  # an oracle that a machine for GPU tests need not have

        polygons = [[Polygon(np.reshape(r["corners"], (4, 2))) for r in part] for part in (found, truth)]
        shared = np.array([[d.intersection(g).area for g in polygons[1]] for d in polygons[0]])
        whole = np.array(
            [[d.area if t["iscrowd"] else d.union(g).area for g, t in zip(polygons[1], truth, strict=True)] for d in polygons[0]]
        )
        return shared / whole


def tool_scores(metric):
    truth, found = COCO(), COCO()
    truth.dataset = json.loads(json.dumps(metric.ground_truth()))
    records = json.loads(json.dumps(metric.predictions()))
    found.dataset = {**truth.dataset, "annotations": [{**r, "id": i, "iscrowd": 0} for i, r in enumerate(records, 1)]}
    truth.createIndex()
    found.createIndex()
    tool = ByShapely(truth, found, "bbox")
    tool.params.maxDets = [1, 10, 1000]
    tool.evaluate()
    tool.accumulate()
    return tool.eval["precision"][..., -1], tool.eval["recall"][..., -1]


def mean(values):
    values = values[values > -1]
    return values.mean() if values.size else float("nan")


@pytest.mark.parametrize("seed", range(3))
def test_written_records_give_the_printed_figure(seed):
    metric = scored(*random_scene(seed))
    precision, recall = tool_scores(metric)
    ours = metric.compute()
    assert 0.1 < ours["obb/ap"] < 0.9
    assert sum(a["iscrowd"] for a in metric.ground_truth()["annotations"]) > 2
    assert ours["obb/ap"] == pytest.approx(mean(precision[:, :, :, 0]), abs=1e-6)
    assert ours["obb/ap50"] == pytest.approx(mean(precision[0, :, :, 0]), abs=1e-6)
    assert ours["obb/ap75"] == pytest.approx(mean(precision[5, :, :, 0]), abs=1e-6)
    for place, name in enumerate(("ap_s", "ap_m", "ap_l"), 1):
        assert ours[f"obb/{name}"] == pytest.approx(mean(precision[..., place]), abs=1e-6, nan_ok=True)
    assert ours["obb/ar"] == pytest.approx(mean(recall[..., 0]), abs=1e-6)


def test_upright_boxes_score_as_boxes():
    plain, found = random_case(3, found=90)

    def rotated(boxes):
        return torch.cat(((boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2], torch.zeros(len(boxes), 1)), 1)

    scenes = []
    for row in range(len(plain)):
        truth = plain.instances(row)
        rows = zip(truth.labels.tolist(), rotated(truth.shapes["boxes"].data).tolist(), truth.ignore.tolist(), strict=True)
        scenes.append(list(rows))
    index = make_index(scenes, ids=plain.ids.tolist())
    turned = []
    for row, p in enumerate(found):
        turned.append(prediction(index, row, p.instances.labels, rotated(p.instances.shapes["boxes"].data), p.instances.scores))
    boxes = CocoMetric(plain)
    boxes.update(found)
    expected, ours = boxes.compute(), scored(index, turned).compute()
    assert 0.05 < expected["box/ap"] < 0.95
    for name in ("ap", "ap50", "ap75", "ap_s", "ap_m", "ap_l"):
        assert ours[f"obb/{name}"] == pytest.approx(expected[f"box/{name}"], abs=2e-3), name


def test_perfect_predictions_score_one_in_any_form():
    index, _ = random_scene(1)
    perfect = []
    for row in range(len(index)):
        truth = index.instances(row)
        data = truth.shapes["rboxes"].data[:, [0, 1, 3, 2, 4]] + torch.tensor([0, 0, 0, 0, math.pi / 2])
        perfect.append(prediction(index, row, truth.labels, data, torch.ones(len(truth))))
    result = scored(index, perfect).compute()
    assert result["obb/ap"] == result["obb/ap_l"] == 1


def test_the_order_of_images_does_not_matter():
    """Images without objects, with a false positive, before and after: updates in any order, merged states in any order."""
    rbox = [100.0, 100, 60, 20, 0.3]
    for scenes in ([[], [(0, rbox, False)]], [[(0, rbox, False)], []]):
        index = make_index(scenes)
        rows = [prediction(index, row, [0], [rbox], [0.9 if not scene else 0.8]) for row, scene in enumerate(scenes)]
        forward, backward = scored(index, rows), scored(index, rows[::-1])
        assert forward.compute()["obb/ap"] == backward.compute()["obb/ap"] == pytest.approx(0.5, abs=0.01)
    index, found = random_scene(2)
    parts = [scored(index, found[::2]), scored(index, found[1::2])]
    merged = CocoMetric(index, ("obb",))
    merged.merge([part.state() for part in parts[::-1]])
    assert merged.compute() == scored(index, found).compute()


def test_another_overlap_is_another_score():
    index = make_index([[(0, [50.0, 50, 40, 20, 0.2], False)]])
    found = {0: prediction(index, 0, [0], [[52.0, 51, 40, 16, 0.3]], [0.9]).instances}
    exact = score_rboxes(index, found)["precision"]
    all_alike = score_rboxes(index, found, lambda a, b: torch.ones(len(a), len(b)))["precision"]
    assert 0 < exact[exact > -1].mean() < 1
    assert all_alike[all_alike > -1].mean() == 1


def test_no_ground_truth_is_undefined_not_zero():
    index = make_index([[], [], []])
    nothing = scored(index, [prediction(index, row) for row in range(3)])
    false = scored(index, [prediction(index, row, [1], [[50, 50, 20, 10, 0]], [0.9]) for row in range(3)])
    for metric in (nothing, false):
        assert all(math.isnan(value) for value in metric.compute().values())
        assert all(row["n"] == 0 and math.isnan(row["ap"]) for row in metric.per_class())
    index = make_index([[(0, [50.0, 50, 20, 10, 0.0], False)]])
    assert scored(index, [prediction(index, 0)]).compute()["obb/ap"] == 0


def test_what_lies_on_a_difficult_object_counts_neither_way():
    good, hard = [100.0, 100, 60, 20, 0.3], [300.0, 300, 80, 80, 0.0]
    index = make_index([[(0, good, False), (0, hard, True)]])
    on_it = [[300.0, 300, 70, 70, 0.1], [310.0, 290, 30, 10, 0.8], good]
    assert scored(index, [prediction(index, 0, [0] * 3, on_it, [0.9, 0.8, 0.7])]).compute()["obb/ap"] == 1
    beside = [[500.0, 100, 70, 70, 0.1], good]
    assert scored(index, [prediction(index, 0, [0] * 2, beside, [0.9, 0.7])]).compute()["obb/ap"] == pytest.approx(0.5)


def test_records_by_class_and_files(tmp_path):
    rbox = [100.0, 100, 60, 20, 0.3]
    index = make_index([[(0, rbox, False), (2, rbox, False)]], ids=[77])
    metric = scored(index, [prediction(index, 0, [0, 1], [rbox, rbox], [0.5, 0.25])])
    table = {row["name"]: row for row in metric.per_class()}
    assert (table["cup"]["n"], table["cup"]["ap"], table["cup"]["id"]) == (1, 1, 7)
    assert table["jug"]["ap"] == 0
    assert math.isnan(table["plate"]["ap"])
    first = json.loads(metric.write(tmp_path / "p.json").read_text())[0]
    assert (first["image_id"], first["category_id"], first["score"]) == (77, 7, 0.5)
    assert first["rbox"] == pytest.approx(rbox, abs=1e-3)
    assert len(first["corners"]) == 8
    assert first["area"] == 1200
    assert first["bbox"][2] == pytest.approx(60 * math.cos(0.3) + 20 * math.sin(0.3), abs=1e-2)

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pellucid.data.index import Ragged
from pellucid.errors import DataError, UsageError
from pellucid.evaluate import CocoMetric
from tests.evaluate.fakes import CATEGORY_IDS, make_index, prediction, random_case

BOX = [10.0, 20, 60, 90]
PLACES = {"ap": 0, "ap50": 1, "ap75": 2, "ap_s": 3, "ap_m": 4, "ap_l": 5, "ar100": 8}


def rescored(metric, folder):
    """The figures that pycocotools gets from the files that we write."""
    truth = COCO(str(metric.write_ground_truth(folder / "truth.json")))
    tool = COCOeval(truth, truth.loadRes(str(metric.write(folder / "predictions.json"))), "bbox")
    tool.evaluate()
    tool.accumulate()
    tool.summarize()
    return tool


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_files_rescored_by_pycocotools_give_the_printed_figures(seed, tmp_path):
    index, predictions = random_case(seed, found=400)  # more than 100 of a class on an image
    assert index.ignore.any()
    assert (np.diff(index.start) == 0).any()
    metric = CocoMetric(index)
    metric.update(predictions)
    scores, tool = metric.compute(), rescored(metric, tmp_path)
    assert 0.05 < scores["box/ap"] < 0.95
    for name, place in PLACES.items():
        assert scores[f"box/{name}"] == pytest.approx(tool.stats[place], abs=1e-6), name


def test_the_class_table_goes_by_the_users_names_and_ids(tmp_path):
    index, predictions = random_case(4)
    metric = CocoMetric(index)
    metric.update(predictions)
    table, precision = metric.per_class(), rescored(metric, tmp_path).eval["precision"]
    assert [(row["name"], row["id"]) for row in table] == [("cup", 7), ("plate", 1), ("jug", 90)]
    assert [row["n"] for row in table] == index.class_counts().tolist()
    assert len({round(row["ap"], 4) for row in table}) == 3
    for row in table:
        own = precision[:, :, sorted(CATEGORY_IDS).index(row["id"]), 0, -1]
        assert row["ap"] == pytest.approx(own.mean(), abs=1e-6)
        assert row["ap50"] == pytest.approx(own[0].mean(), abs=1e-6)


def test_the_written_records_carry_the_users_ids(tmp_path):
    index = make_index([[(0, BOX)], [(2, BOX)]], ids=[31, 7])
    metric = CocoMetric(index)
    metric.update([prediction(index, 1, [2], [BOX], [0.5]), prediction(index, 0, [0], [BOX], [0.25])])
    assert json.loads(metric.write(tmp_path / "deep" / "p.json").read_text()) == [
        {"image_id": 31, "category_id": 7, "score": 0.25, "bbox": [10, 20, 50, 70]},
        {"image_id": 7, "category_id": 90, "score": 0.5, "bbox": [10, 20, 50, 70]},
    ]
    truth = json.loads(metric.write_ground_truth(tmp_path / "t.json").read_text())
    assert [image["file_name"] for image in truth["images"]] == ["shelf 0.jpg", "shelf 1.jpg"]
    assert truth["categories"][2] == {"id": 90, "name": "jug"}


def test_perfect_predictions_score_one():
    index, _ = random_case(5)
    metric = CocoMetric(index)
    for row in range(len(index)):
        truth = index.instances(row)
        metric.update([prediction(index, row, truth.labels, truth.shapes["boxes"].data, [1.0] * len(truth))])
    assert len(index.labels) > 20
    assert metric.compute()["box/ap"] == pytest.approx(1.0)


def test_the_order_of_images_does_not_matter():
    index = make_index([[], [(0, BOX)], [(0, BOX)]])
    wrong = [100.0, 100, 200, 200]
    found = [
        prediction(index, 0, [0], [wrong], [0.9]),  # false, on an empty image
        prediction(index, 1, [0], [BOX], [0.9]),
        prediction(index, 2, [0], [wrong], [0.8]),
    ]
    scores = []
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        metric = CocoMetric(index)
        for row in order:
            metric.update([found[row]])
        scores.append(metric.compute()["box/ap"])
    assert 0 < scores[0] < 1
    assert scores[0] == scores[1] == scores[2]


def test_no_ground_truth_is_undefined_and_no_prediction_is_zero():
    empty = make_index([[], []])
    metric = CocoMetric(empty)
    metric.update([prediction(empty, 0, [0], [BOX], [0.9]), prediction(empty, 1)])
    assert all(math.isnan(value) for value in metric.compute().values())
    index = make_index([[(0, BOX)]])
    metric = CocoMetric(index)
    metric.update([prediction(index, 0)])
    assert metric.compute()["box/ap"] == 0
    assert [row["n"] for row in metric.per_class()] == [1, 0, 0]
    assert math.isnan(metric.per_class()[1]["ap"])
    assert math.isnan(CocoMetric(index).compute()["box/ap"])  # nothing seen yet


def test_a_crowd_absorbs_any_number_of_predictions():
    index = make_index([[(0, [0.0, 0, 300, 300], True), (0, [400.0, 400, 450, 450])]])
    metric = CocoMetric(index)
    metric.update([prediction(index, 0, [0, 0, 0], [[10, 10, 60, 60], [90, 90, 150, 150], [400, 400, 450, 450]], [0.9, 0.8, 0.7])])
    assert metric.compute()["box/ap"] == pytest.approx(1.0)


def test_the_area_is_the_users_where_there_is_one():
    index = make_index([[(0, BOX), (0, [100.0, 100, 200, 200])]])
    areas = Ragged(np.array([500.0, 0.0]), np.arange(3))
    metric = CocoMetric(replace(index, columns={"area": areas}))
    metric.update([prediction(index, 0, [0], [BOX], [0.9])])
    assert [a["area"] for a in metric.ground_truth()["annotations"]] == [500, 10_000]
    scores = metric.compute()
    assert scores["box/ap_s"] == pytest.approx(1.0)
    assert math.isnan(scores["box/ap_m"])
    assert scores["box/ap_l"] == 0


def test_parts_merge_and_repeated_images_count_once():
    index, predictions = random_case(6)
    whole, first, second = CocoMetric(index), CocoMetric(index), CocoMetric(index)
    whole.update(predictions)
    first.update(predictions[:8])
    partial = first.compute()
    second.update(predictions[6:])
    first.merge([second.state()])
    assert first.compute() == whole.compute() != partial
    assert len(first.predictions()) == sum(len(p.instances) for p in predictions)


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(UsageError, match="box"):
        CocoMetric(make_index([[]]), ("smell",))
    with pytest.raises(DataError, match="2 images with 1 ids"):
        CocoMetric(make_index([[], []], ids=[5, 5]))

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.data.images import letterbox
from pellucid.errors import UsageError
from pellucid.evaluate import evaluate
from pellucid.evaluate.run import label_map
from pellucid.tasks import TASKS
from pellucid.types import Batch, ImageMeta, Packed, Targets
from tests.decode.fakes import RedFinder
from tests.evaluate.fakes import make_index

TASK = TASKS["detect"]()
NAMES, IDS = ("blue", "red"), (4, 9)
RED = [(10, 20, 70, 60), (30, 5, 100, 95), None, (0, 0, 25, 40), (60, 40, 119, 99)]  # on pictures of 120 x 100


def empty_targets(count):
    return Targets(torch.zeros(count, 4, dtype=torch.int64), torch.zeros(count, 4, dtype=torch.bool), torch.zeros(count, 4, 4))


def make_data(boxes=RED, size=192):
    """An index, and (canvas, meta) of each picture."""
    index = make_index([[(1, [float(v) for v in box])] if box else [] for box in boxes], NAMES, IDS, size=(100, 120))
    items = []
    for row, box in enumerate(boxes):
        image = np.full((100, 120, 3), 90, np.uint8)
        if box:
            image[box[1] : box[3], box[0] : box[2]] = (255, 0, 0)
        canvas, placed = letterbox(image, size)
        items.append((canvas, ImageMeta(row, int(index.ids[row]), "", 100, 120, placed)))
    return index, items


def batches(items, count=2):
    for start in range(0, len(items), count):
        canvases, metas = zip(*items[start : start + count], strict=True)
        images = torch.from_numpy(np.stack(canvases)).permute(0, 3, 1, 2)
        yield Batch(images, empty_targets(len(metas)), metas)


def test_both_paths_from_one_forward():
    index, items = make_data()
    model = RedFinder().train()
    scores = evaluate(model, batches(items), index, TASK, NAMES)
    assert model.batches == [2, 2, 1]
    assert model.training
    assert scores.images == 5
    assert scores.paths.keys() == {"e2e", "nms"}
    for path in scores.paths.values():
        assert path.metrics["box/ap50"] == pytest.approx(1.0)
        assert path.metrics["box/ap"] > 0.85  # to the resampled edge
        assert path.confusion.counts.tolist() == [[0, 0, 0], [0, 4, 0], [0, 0, 0]]
        assert path.curves.best()[1] == pytest.approx(1.0)
        assert set(path.speed) == {"pre", "network", "post"}
    assert scores.gap == pytest.approx(0.0)
    assert scores.notes == ()


def test_the_report_is_json_with_the_protocol():
    index, items = make_data()
    report = json.loads(
        json.dumps(evaluate(RedFinder(), batches(items), index, TASK, conf=0.01, max_det=7, weights="EMA").to_dict(), allow_nan=False)
    )
    assert report["task"] == TASK.name
    assert report["e2e"]["box/ap50"] == pytest.approx(1.0)
    assert report["nms"]["box/ap75"] == pytest.approx(1.0)
    assert report["nms"]["per_class"][0] == {"name": "blue", "id": 4, "n": 0, "ap": None, "ap50": None}
    assert all(part in report["protocol"] for part in ("0.01", "at most 7", "EMA weights", "faster-coco-eval"))
    assert report["gap"] == pytest.approx(0.0)


def test_one_path_has_no_gap():
    index, items = make_data()
    scores = evaluate(RedFinder(), batches(items), index, TASK, paths=("e2e",), curves=False)
    assert scores.gap is None
    assert scores.paths["e2e"].confusion is None


def test_a_packed_validation_batch_is_unpacked():
    index, items = make_data()
    canvases, metas = zip(*items, strict=True)
    buffer = torch.from_numpy(np.stack(canvases)).flatten()
    count, size = len(items), canvases[0].shape[0]
    layers = torch.eye(3).repeat(count, 1, 1), torch.tensor([[0.0, 1, 1]]).repeat(count, 1)
    packed = Packed(buffer, ((size, size),) * count, *layers, (), torch.zeros(0, 1, 1, 1), size, False, empty_targets(count), metas)
    assert evaluate(RedFinder(), [packed], index, TASK).paths["nms"].metrics["box/ap50"] == pytest.approx(1.0)


def test_classes_are_matched_by_name():
    index, items = make_data()
    finder = RedFinder()  # finds its class 1
    assert evaluate(finder, batches(items), index, TASK, ("red", "blue")).paths["e2e"].metrics["box/ap50"] == 0
    with pytest.raises(UsageError, match="2 classes \\(red, green\\)"):
        evaluate(finder, batches(items), index, TASK, ("red", "green"))


class OneClass(RedFinder):
    def forward(self, images):
        plain = super().forward(images)
        dense = replace(plain.one, outputs={**plain.one.outputs, "cls": plain.one.outputs["cls"][..., 1:]})
        return replace(plain, one=dense, many=dense)


def test_equal_names_stay_apart():
    found = label_map(["cat", "dog", "cat"], ["dog", "cat", "cat"])
    assert found.tolist() == [1, 0, 2]


def test_a_class_that_is_nearly_the_models_is_asked_about():
    with pytest.raises(UsageError, match=r"did you mean 'tree' for 'Tre'\?$"):
        label_map(["car", "tree"], ["Tre", "car"])
    with pytest.raises(UsageError, match=r"train on this data first$"):  # each of the model's classes is there
        label_map(["kind0", "kind1"], ["kind0", "kind1", "kind2"])


def test_one_class_by_another_name_is_told():
    index, items = make_data()
    single = index.single_class()
    told = evaluate(OneClass(), batches(items), single, TASK, ["tree"], curves=False).notes
    same = evaluate(OneClass(), batches(items), single, TASK, single.names, curves=False).notes
    assert any("tree" in note and single.names[0] in note for note in told)
    assert not any("compared" in note for note in same)


def test_data_without_objects_has_no_score():
    index, items = make_data([None, None])
    scores = evaluate(RedFinder(), batches(items), index, TASK)
    assert math.isnan(scores.paths["e2e"].metrics["box/ap"])
    assert math.isnan(scores.gap)
    assert scores.to_dict()["e2e"]["box/ap"] is None
    assert "no ground truth" in scores.notes[0]


def test_an_unknown_precision_is_refused():
    index, items = make_data()
    with pytest.raises(UsageError, match="32, 16, bf16"):
        evaluate(RedFinder(), batches(items), index, TASK, precision="8")


def test_as_one_class_the_models_classes_do_not_matter():
    index, items = make_data()
    whole = index.single_class()
    finder = RedFinder()  # finds its class 1
    assert evaluate(finder, batches(items), whole, TASK, ("a", "b", "c"), single_cls=True).paths["e2e"].metrics[
        "box/ap50"
    ] == pytest.approx(1.0)
    with pytest.raises(UsageError, match="3 classes"):
        evaluate(finder, batches(items), whole, TASK, ("a", "b", "c"))


def test_what_several_processes_saw_is_scored_as_if_one_had_seen_it():
    index, items = make_data()
    whole = evaluate(RedFinder(), batches(items), index, TASK)
    seen = []
    evaluate(RedFinder(), batches(items[:3]), index, TASK, gather=lambda state: [seen.append(state) or state])
    assert [len(state) for state in seen] == [3, 3]
    waiting = iter(seen)  # the second process has one picture twice, to have as many as the first
    joined = evaluate(RedFinder(), batches(items[2:]), index, TASK, gather=lambda state: [next(waiting), state])
    assert joined.images == whole.images == 5
    for path, scores in whole.paths.items():
        other = joined.paths[path]
        assert scores.confusion.counts.sum() == 4
        assert other.metrics == pytest.approx(scores.metrics, nan_ok=True)
        assert np.array_equal(other.confusion.counts, scores.confusion.counts)
        assert np.array_equal(other.curves.recall, scores.curves.recall, equal_nan=True)
        assert np.array_equal(other.curves.precision, scores.curves.precision, equal_nan=True)

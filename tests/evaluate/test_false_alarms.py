"""A finding on a picture without objects is a false alarm of its class: in the matrix, the curves and the page, for every task."""

import json

import numpy as np
import pytest
import torch

from pellucid.data.readers import open_dataset
from pellucid.evaluate.run import Meter, Scores
from pellucid.geometry import Rle
from pellucid.report.details import write_report
from pellucid.tasks import TASKS
from pellucid.types import ImageMeta, Instances, Prediction
from pellucid.zoo import Card, make_task
from tests.train.conftest import make_kind, make_squares

ROWS = {"detect": "boxes", "segment": "polygons", "pose": "keypoints", "obb": "rboxes"}
ARGUMENTS = {"pose": {"points": 4, "dims": 3}}


def as_found(objects):
    shapes = dict(objects.shapes)
    if "polygons" in shapes:
        shapes["masks"] = Rle.of_masks(shapes.pop("polygons").rasterise(64, 64))
    return Instances(objects.labels, shapes, torch.full((len(objects),), 0.9))


@pytest.fixture(params=sorted(TASKS))
def case(request, tmp_path):
    """(index, task): the first picture has objects, the second an empty label file, the third none."""
    kind = ROWS[request.param]
    path = make_squares(tmp_path, train=1, val=3) if kind == "boxes" else make_kind(tmp_path, kind, train=1, val=3)
    labels = tmp_path / "labels" / "val"
    assert all(label.read_text() for label in labels.iterdir())
    (labels / "1.txt").write_text("")
    (labels / "2.txt").unlink()
    task = make_task(Card(request.param, "n", ("kind0", "kind1"), (0, 1), 64, ARGUMENTS.get(request.param, {})))
    return open_dataset(str(path), needs=task.needs, splits=("val",)).splits["val"], task


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_every_kind_counts_them(case, order, tmp_path):
    index, task = case
    objects = index.instances(0)
    (label,) = set(objects.labels.tolist())
    assert [len(index.instances(row)) for row in range(3)] == [len(objects), 0, 0] == [1, 0, 0]
    meter = Meter(index, task, None, True)
    for row in order:
        meter.update([Prediction(ImageMeta(row, int(index.ids[row]), str(index.path(row)), 64, 64), as_found(objects))])
    scores = meter.scores({"pre": 0.0, "network": 0.0, "post": 0.0})
    expected = np.zeros((3, 3), int)
    expected[label, label], expected[label, 2] = 1, 2  # predicted, true
    assert np.array_equal(scores.confusion.counts, expected)
    assert scores.curves.precision[label, 500] == pytest.approx(1 / 3)
    assert scores.curves.recall[label, 500] == 1

    told = Scores(task.name, 3, "protocol", {"e2e": scores})
    (tmp_path / "scores.json").write_text(json.dumps(told.to_dict()))
    page = write_report(tmp_path, told, {"val": index}, "val", {"model": "m", "data": "d"})
    assert json.loads((tmp_path / "details.json").read_text())["confusion"]["counts"] == expected.T.tolist()
    assert f"background found as kind{label}: 2" in page.read_text()

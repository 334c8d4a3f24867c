"""Oriented boxes from the head's output to predictions: canonical, sound, in original pixels, each once."""

import math

import numpy as np
import pytest
import torch

from pellucid.assign.points import anchor_points
from pellucid.decode import decode, restore
from pellucid.evaluate import CocoMetric
from pellucid.geometry import Boxes, Letterbox
from pellucid.geometry.rboxes import RBoxes, canonical, rbox_bounds, rbox_iou
from pellucid.tasks import TASKS
from pellucid.tasks.obb import rbox_shapes, rbox_targets
from pellucid.train.criterion import Criterion
from pellucid.types import Dense, ImageMeta, Instances, Output, Prediction, Targets
from tests.evaluate.test_rotated import make_index, random_scene

TASK = TASKS["obb"]()
SIZE = 256
POINTS, STRIDES = anchor_points([(32, 32), (16, 16), (8, 8)], (8, 16, 32), torch.device("cpu"))


def raw(rboxes: torch.Tensor, anchors: torch.Tensor, labels: torch.Tensor, score: float = 6.0) -> Dense:
    """A branch whose anchors (n,) say the boxes (n, 5), in the form given, and all others nothing."""
    points, strides = POINTS[anchors], STRIDES[anchors]
    dx, dy = (rboxes[:, :2] - points).unbind(-1)
    c, s = rboxes[:, 4].cos(), rboxes[:, 4].sin()
    u, v = dx * c + dy * s, dy * c - dx * s
    w, h = rboxes[:, 2] / 2, rboxes[:, 3] / 2
    outputs = {"cls": torch.full((1, len(POINTS), 3), -12.0), "box": torch.ones(1, len(POINTS), 4), "angle": torch.zeros(1, len(POINTS), 1)}
    outputs["box"][0, anchors] = torch.stack((w - u, h - v, w + u, h + v), -1) / strides[:, None]
    outputs["angle"][0, anchors, 0] = rboxes[:, 4]
    outputs["cls"][0, anchors, labels] = score
    return Dense(outputs, POINTS, STRIDES)


def nearest(rboxes: torch.Tensor) -> torch.Tensor:
    """An anchor for each box, no two alike."""
    taken: list[int] = []
    for centre in rboxes[:, :2]:
        order = (POINTS - centre).norm(dim=-1).argsort().tolist()
        taken.append(next(place for place in order if place not in taken))
    return torch.tensor(taken)


def found(dense: Dense, path: str = "e2e", **settings) -> Instances:
    return decode(Output(dense, dense, {}, (SIZE, SIZE)), TASK, path, **settings)[0]


@pytest.mark.parametrize("path", ["e2e", "nms"])
@pytest.mark.parametrize("turns", [-7, 0, 3, 100])
def test_predictions_are_canonical_whatever_the_raw_angle(path, turns):
    """The angle has no bounds and w may be the short side: what comes out is the one form of the same rectangle."""
    truth = torch.tensor([[100.0, 80, 60, 20, 0.3], [180, 200, 30, 28, -0.6], [40, 200, 24, 50, 2.0]])
    shifted = truth + torch.tensor([0, 0, 0, 0, turns * math.pi])
    objects = found(raw(shifted, nearest(truth), torch.tensor([0, 1, 2])), path)
    assert sorted(objects.labels.tolist()) == [0, 1, 2]
    rboxes = objects.shapes["rboxes"].data[objects.labels.argsort()]
    assert torch.equal(canonical(rboxes), rboxes)
    assert rbox_iou(rboxes.double(), truth.double()).min() > 0.999
    torch.testing.assert_close(objects.shapes["boxes"].data, rbox_bounds(objects.shapes["rboxes"].data))


@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_boxes_without_area_and_no_numbers_are_left_out(path):
    rows = torch.tensor([[100.0, 80, 60, 20, 0.3], [180, 200, -30, 28, 0.8], [40, 200, 24, 0, 2.0], [200, 40, 30, 10, 0.1]])
    dense = raw(rows, nearest(rows), torch.zeros(4, dtype=torch.int64))
    dense.outputs["angle"][0, nearest(rows)[3]] = math.nan
    assert found(dense, path).shapes["rboxes"].data[:, :2].round().tolist() == [[100, 80]]


def test_suppression_looks_at_the_turned_boxes():
    """Two crossing bars share one box around them and hardly an area; two nearly equal ones are one."""
    rows = torch.tensor([[100.0, 100, 80, 8, math.pi / 4], [101, 101, 80, 8, 3 * math.pi / 4], [102, 100, 80, 8, math.pi / 4 + 0.01]])
    dense = raw(rows, nearest(rows), torch.zeros(3, dtype=torch.int64))
    assert len(found(dense, "nms", iou=0.3)) == 2
    assert len(found(dense, "nms", iou=0.99)) == 3


def test_perfect_outputs_score_one_on_both_paths_in_original_pixels():
    """Through decode, restore and the metric, on pictures of 300 x 200 letterboxed."""
    index, _ = random_scene(5)
    for path in ("e2e", "nms"):
        metric = CocoMetric(index, TASK.metrics)
        for row in range(len(index)):
            height, width = index.sizes[row].tolist()
            placed = Letterbox.fit(height, width, SIZE)
            truth = index.instances(row)
            moved = truth.warp(placed.matrix()).shapes["rboxes"].data
            anchors = nearest(moved) if len(moved) else torch.zeros(0, dtype=torch.int64)
            objects = restore(found(raw(moved, anchors, truth.labels, 9.0), path, conf=0.5, iou=0.95), placed)
            meta = ImageMeta(row, int(index.ids[row]), "", height, width, placed)
            metric.update([Prediction(meta, objects)])
            if len(truth):
                assert rbox_iou(objects.shapes["rboxes"].data[:, None], truth.shapes["rboxes"].data).amax(0).min() > 0.97
        assert metric.compute()["obb/ap"] > 0.99


def test_a_batch_mixes_pictures_with_and_without_objects():
    """Items are finite, the empty picture teaches background alone, and thin objects none of it."""
    rboxes = torch.zeros(2, 4, 5)
    rboxes[0, :2] = torch.tensor([[100.0, 80, 60, 20, 0.3], [180, 200, 40, 1.5, 0.8]])
    valid = torch.zeros(2, 4, dtype=torch.bool)
    valid[0, :2] = True
    targets = Targets(torch.zeros(2, 4, dtype=torch.int64), valid, rbox_bounds(rboxes), {"rboxes": rboxes})
    generator = torch.Generator().manual_seed(0)
    shape = (2, len(POINTS))
    outputs = {
        "cls": torch.randn(*shape, 3, generator=generator),
        "box": 1 + torch.rand(*shape, 4, generator=generator),
        "angle": torch.randn(*shape, 1, generator=generator),
    }
    outputs = {name: value.requires_grad_() for name, value in outputs.items()}
    dense = Dense(outputs, POINTS, STRIDES)
    many, _ = Criterion(TASK)(Output(dense, dense, {}, (SIZE, SIZE)), targets)
    items = many.means()
    assert all(torch.isfinite(value) and value > 0 for value in items.values())
    many.total().backward()
    touched = outputs["box"].grad.abs().sum(-1) > 0
    assert not touched[1].any()
    window = TASK.overlap.inside(POINTS, STRIDES, targets.truth)
    assert window[0, 0].any()
    assert not window[0, 1].any()
    assert torch.equal(touched[0] & ~window[0, 0], torch.zeros_like(touched[0]))


def test_targets_are_canonical():
    data = torch.tensor([[50.0, 40, 10, 30, 0.3 + 5 * math.pi], [10, 10, 5, 5, 9.0]])
    objects = Instances(torch.tensor([0, 1]), {"boxes": Boxes(rbox_bounds(data)), "rboxes": RBoxes(data)})
    rows = rbox_targets(objects, 64)["rboxes"]
    assert rows.shape == (2, 5)
    assert (rows[:, 2] >= rows[:, 3]).all()
    assert np.all((rows[:, 4] >= -math.pi / 4).numpy())
    torch.testing.assert_close(rows, canonical(data))
    assert rbox_targets(objects[:0], 64)["rboxes"].shape == (0, 5)


def test_distances_are_measured_in_the_turned_frame():
    """l, t, r, b = 1, 2, 3, 4 strides at a quarter turn: one stride up in the picture is l."""
    outputs = {"box": torch.tensor([[[1.0, 2, 3, 4]]]), "angle": torch.tensor([[[math.pi / 2]]])}
    shapes = rbox_shapes(outputs, torch.tensor([[100.0, 100]]), torch.tensor([8.0]))
    assert shapes["rboxes"][0, 0].tolist() == pytest.approx([92, 108, 32, 48, math.pi / 2], abs=1e-4)
    assert shapes["boxes"][0, 0].tolist() == pytest.approx([68, 92, 116, 124], abs=1e-4)


def test_no_index_without_rows_breaks_the_scores():
    index = make_index([[]])
    metric = CocoMetric(index, TASK.metrics)
    empty = Instances(torch.zeros(0, dtype=torch.int64), {"boxes": Boxes.empty(), "rboxes": RBoxes.empty()}, torch.zeros(0))
    metric.update([Prediction(ImageMeta(0, 0, "", 480, 640), empty)])
    assert math.isnan(metric.compute()["obb/ap"])

from dataclasses import replace

import pytest
import torch
from torchvision.ops import box_iou

from pellucid.decode import decode, suppress, top_rows
from pellucid.decode import nms as nms_module
from pellucid.errors import UsageError
from pellucid.tasks import TASKS
from pellucid.types import Output
from tests.decode.fakes import make_dense, make_output, random_boxes

TASK = TASKS["detect"]()


def scene(seed, images=3, anchors=400, classes=4):
    generator = torch.Generator().manual_seed(seed)
    return random_boxes(generator, images, anchors), torch.randn(images, anchors, classes, generator=generator) * 3 - 1


def greedy(boxes, logits, conf, iou, limit, agnostic):
    """The textbook algorithm, one candidate at a time: [(score, label, anchor)]."""
    scores = logits.sigmoid()
    pairs = sorted(
        ((scores[a, c].item(), -a, c) for a in range(len(boxes)) for c in range(logits.shape[1]) if scores[a, c] >= conf), reverse=True
    )
    overlap = box_iou(boxes.double(), boxes.double())
    kept = []
    for score, a, c in pairs:
        rivals = [k for k in kept if agnostic or k[1] == c]
        if all(overlap[-a, k[2]] <= iou for k in rivals):
            kept.append((score, c, -a))
    return kept[:limit]


def test_top_rows_are_the_best_anchors_with_their_best_class():
    boxes, logits = scene(0)
    rows = top_rows(make_dense(boxes, logits), TASK, 50)
    assert rows.scores.shape == (3, 50)
    assert rows.values["boxes"].shape == (3, 50, 4)
    assert rows.values["box"].shape == (3, 50, 4)
    assert "cls" not in rows.values
    best = logits.sigmoid().amax(-1)
    for image in range(3):
        order = best[image].argsort(descending=True)[:50]
        torch.testing.assert_close(rows.scores[image], best[image, order])
        torch.testing.assert_close(rows.values["boxes"][image], boxes[image, order], atol=1e-4, rtol=0)
        assert torch.equal(rows.labels[image], logits[image, order].argmax(-1))


def test_fewer_anchors_than_the_limit():
    boxes, logits = scene(1, anchors=21)
    assert top_rows(make_dense(boxes, logits), TASK, 300).scores.shape == (3, 21)
    assert all(len(found) == 21 for found in decode(make_output(boxes, logits), TASK, conf=0.0))


def test_half_precision_outputs_give_float_rows():
    boxes, logits = scene(2)
    rows = top_rows(make_dense(boxes, logits.half()), TASK, 10)
    assert rows.scores.dtype == torch.float32
    assert rows.values["boxes"].dtype == torch.float32


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_suppression_equals_the_textbook(seed, agnostic):
    boxes, logits = scene(seed, images=2, anchors=120)
    found = suppress(make_dense(boxes, logits), TASK, 0.3, 0.5, 60, agnostic)
    for image in range(2):
        expected = greedy(boxes[image], logits[image], 0.3, 0.5, 60, agnostic)
        assert len(expected) > 10
        assert found[image].labels.tolist() == [label for _, label, _ in expected]
        torch.testing.assert_close(found[image].scores, torch.tensor([score for score, _, _ in expected]))
        torch.testing.assert_close(found[image].values["boxes"], boxes[image, [a for *_, a in expected]], atol=1e-4, rtol=0)


def test_suppression_drops_something():
    boxes, logits = scene(3)
    loose, tight = (suppress(make_dense(boxes, logits), TASK, 0.3, iou, 10_000)[0] for iou in (1.0, 0.3))
    assert 0 < len(tight) < len(loose)


def test_an_anchor_may_stand_for_two_classes():
    boxes = torch.tensor([[[4.0, 4, 20, 20]]])
    rows = suppress(make_dense(boxes, torch.tensor([[[1.0, 2.0, -9.0]]])), TASK, 0.1)[0]
    assert rows.labels.tolist() == [1, 0]


@pytest.mark.parametrize("path", ["e2e", "nms"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "inverted"])
def test_unusable_boxes_never_survive(path, bad):
    boxes, logits = scene(4, images=1, anchors=30)
    if bad == "inverted":
        boxes[0, 3] = torch.tensor([30.0, 30, 10, 10])
    else:
        boxes[0, 3, 1] = bad
    logits[0, 3, 2] = 12.0  # the best of all
    found = decode(make_output(boxes, logits), TASK, path, conf=0.2, iou=1.0)[0]
    assert len(found) > 5
    assert found.shapes["boxes"].data.isfinite().all()
    assert found.scores.max() < 0.99999


@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_scores_that_are_not_numbers_take_no_place(path):
    boxes, logits = scene(5, images=1, anchors=30)
    logits[0, :10] = float("nan")
    found = decode(make_output(boxes, logits), TASK, path, conf=0.0, iou=1.0, max_det=20)[0]
    assert len(found) == 20
    assert found.scores.isfinite().all()


@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_chosen_classes_are_not_crowded_out(path):
    boxes, logits = scene(6, images=1)
    logits[..., 0] += 20
    found = decode(make_output(boxes, logits), TASK, path, conf=0.05, iou=0.9, max_det=15, classes=(1, 3))[0]
    assert len(found) == 15
    assert set(found.labels.tolist()) == {1, 3}


@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_threshold_limit_and_order(path):
    boxes, logits = scene(7)
    output = make_output(boxes, logits)
    for found in decode(output, TASK, path, conf=0.6, max_det=25):
        assert 5 < len(found) <= 25
        assert (found.scores >= 0.6).all()
        assert (found.scores.diff() <= 0).all()
        assert found.labels.dtype == torch.int64
    assert all(len(found) == 0 for found in decode(output, TASK, path, conf=1.0))


@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_alone_or_in_a_batch(path):
    boxes, logits = scene(8)
    together = decode(make_output(boxes, logits), TASK, path)
    for row, found in enumerate(together):
        alone = decode(make_output(boxes[row : row + 1], logits[row : row + 1]), TASK, path)[0]
        assert len(alone) > 5
        assert torch.equal(alone.shapes["boxes"].data, found.shapes["boxes"].data)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_the_device_finds_what_the_host_finds(path):
    boxes, logits = scene(11)
    host = decode(make_output(boxes, logits), TASK, path, classes=(0, 2))
    dense = make_dense(boxes, logits)
    moved = replace(
        dense, outputs={k: v.cuda() for k, v in dense.outputs.items()}, points=dense.points.cuda(), strides=dense.strides.cuda()
    )
    for a, b in zip(host, decode(Output(moved, moved, {}, (64, 64)), TASK, path, classes=(0, 2)), strict=True):
        assert len(a) > 10
        assert torch.equal(a.labels, b.labels)
        torch.testing.assert_close(a.shapes["boxes"].data, b.shapes["boxes"].data)


def test_only_the_best_candidates_are_compared(monkeypatch):
    monkeypatch.setattr(nms_module, "CANDIDATES", 5)
    boxes, logits = scene(9, images=1)
    found = suppress(make_dense(boxes, logits), TASK, 0.1, 1.0)[0]
    torch.testing.assert_close(found.scores, logits.sigmoid().flatten().topk(5).values)


def test_what_cannot_be_done_is_refused():
    boxes, logits = scene(10)
    dense = make_dense(boxes, logits)
    with pytest.raises(UsageError, match="path='nms'"):
        decode(Output(dense, None, {}, (64, 64)), TASK, "e2e")
    with pytest.raises(UsageError, match="path='e2e'"):
        decode(Output(None, dense, {}, (64, 64)), TASK, "nms")
    with pytest.raises(UsageError, match="e2e, nms"):
        decode(make_output(boxes, logits), TASK, "both")
    with pytest.raises(UsageError, match="from 0 to 3"):
        decode(make_output(boxes, logits), TASK, "e2e", classes=(4,))

"""The comparison of a file with torch sees what is wrong, and says when it saw nothing."""

from dataclasses import replace

import pytest
import torch

from pellucid.export import parity
from pellucid.export.parity import Gaps, compare
from pellucid.geometry import Boxes
from pellucid.geometry.keypoints import Keypoints
from pellucid.geometry.masks import Masks
from pellucid.geometry.rboxes import RBoxes
from pellucid.types import Instances

BOXES = torch.tensor([[10.0 * i, 5 * i, 10 * i + 40, 5 * i + 30] for i in range(1, 8)])
SHAPES = {
    "boxes": lambda boxes: Boxes(boxes),
    "keypoints": lambda boxes: Keypoints(torch.cat([boxes.view(-1, 2, 2), torch.ones(len(boxes), 2, 1)], -1), predicted=True),
    "rboxes": lambda boxes: RBoxes(torch.cat([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2], boxes[:, :1] * 0 + 0.3], 1)),
    "masks": lambda boxes: Masks.of_prototypes(torch.ones(len(boxes), 1), torch.ones(1, 32, 32), boxes),
}


def objects(kind="boxes", boxes=BOXES, scores=None, labels=None):
    scores = torch.linspace(0.9, 0.3, len(boxes)) if scores is None else scores
    labels = torch.arange(len(boxes)) % 2 if labels is None else labels
    return Instances(labels, {"boxes": Boxes(boxes), kind: SHAPES[kind](boxes)}, scores)


def held(monkeypatch, ours, theirs, half=False) -> Gaps:
    nets = {"ours": ours, "theirs": theirs}
    monkeypatch.setattr(parity, "_seen", lambda net, images, task, path: [nets[net]] * len(images))
    return compare("ours", "theirs", None, "e2e", torch.zeros(2, 3, 128, 128, dtype=torch.uint8), half)


@pytest.mark.parametrize("kind", SHAPES)
def test_the_same_is_the_same_and_a_shift_is_seen(kind, monkeypatch):
    gaps = held(monkeypatch, objects(kind), objects(kind))
    assert gaps.faults == gaps.warnings == []
    assert gaps.largest == {"score": 0, "boxes": 0, kind: 0}
    assert (gaps.compared, gaps.sure, gaps.pictures) == (14, 14, 2)
    moved = BOXES.clone()
    moved[3] += 6
    shifted = objects(kind)
    shifted = replace(shifted, shapes={**shifted.shapes, kind: SHAPES[kind](moved)})
    gaps = held(monkeypatch, objects(kind), shifted)
    assert any(fault.startswith(kind) for fault in gaps.faults)
    assert gaps.largest[kind] == pytest.approx(6 if kind != "masks" else 1 - (34 * 24) / (2 * 40 * 30 - 34 * 24), abs=0.02)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"boxes": BOXES[:-1], "scores": torch.linspace(0.9, 0.4, 6), "labels": torch.arange(6) % 2}, "boxes"),
        ({"scores": torch.linspace(0.9, 0.32, 7)}, "score"),
        ({"scores": torch.full((7,), torch.nan)}, "score"),
        ({"labels": (torch.arange(7) + 1) % 2}, "another class for"),
        ({"boxes": BOXES[:0], "scores": torch.zeros(0), "labels": torch.zeros(0, dtype=torch.long)}, "score"),
    ],
    ids=["one missing", "scores", "nan", "classes", "nothing"],
)
def test_faults_are_named_both_ways(change, fault, monkeypatch):
    other = objects(**change)
    for pair in ((objects(), other), (other, objects())):
        assert any(found.startswith(fault) for found in held(monkeypatch, *pair).faults), pair


def test_a_row_that_ranks_behind_the_last_is_no_fault(monkeypatch):
    scores = torch.linspace(0.9, 0.3, 7)
    scores[-1] = scores[-2]  # a tie: either may come last
    boxes = BOXES.clone()
    boxes[-1] += 20
    gaps = held(monkeypatch, objects(scores=scores), objects(boxes=boxes, scores=scores))
    assert gaps.faults == []
    assert gaps.compared == 12
    scores[-1] = scores[-2] + 0.1
    assert held(monkeypatch, objects(scores=scores), objects(boxes=boxes, scores=scores)).faults


def test_little_to_compare_is_told(monkeypatch):
    low = torch.linspace(0.04, 0.01, 7)
    gaps = held(monkeypatch, objects(scores=low), objects(scores=low))
    assert gaps.faults == []
    assert (gaps.compared, gaps.sure) == (14, 0)
    assert "says little" in gaps.warnings[0]
    nothing = objects(boxes=BOXES[:0])
    assert held(monkeypatch, nothing, nothing).faults == ["no object was compared"]

"""The assigner against a slow one written as the prose says it, and its edge cases."""

import pytest
import torch

from pellucid.assign import aligned
from pellucid.assign.aligned import align
from pellucid.assign.points import anchor_points
from pellucid.geometry.boxes import box_ciou
from pellucid.tasks import TASKS
from pellucid.types import Dense, Targets

TASK = TASKS["detect"]()
POINTS, STRIDES = anchor_points([(16, 16), (8, 8), (4, 4)], (8, 16, 32), torch.device("cpu"))


def scene(objects: int, seed: int, classes: int = 3, batch: int = 2, side: float = 60.0, noise: float = 4.0):
    """Random objects, and predictions that lie near the object closest to each anchor."""
    g = torch.Generator().manual_seed(seed)
    centre = torch.rand(batch, objects, 2, generator=g) * 128
    half = 3 + torch.rand(batch, objects, 2, generator=g) * side / 2
    boxes = torch.cat((centre - half, centre + half), -1)
    labels = torch.randint(classes, (batch, objects), generator=g)
    nearest = (POINTS[None, :, None] - centre[:, None]).square().sum(-1).argmin(-1)  # (B, A)
    predicted = boxes.gather(1, nearest[..., None].expand(-1, -1, 4)) + torch.randn(batch, len(POINTS), 4, generator=g) * noise
    logits = torch.randn(batch, len(POINTS), classes, generator=g)
    return logits, {"boxes": predicted}, labels, torch.ones_like(labels, dtype=torch.bool), {"boxes": boxes}


def run(logits, shapes, labels, valid, truth, topk, single=False):
    return align(Dense({"cls": logits}, POINTS, STRIDES), shapes, {}, Targets(labels, valid, truth["boxes"]), TASK.overlap, topk, single)


def by_prose(logits, shapes, labels, valid, truth, topk, single):
    """{(image, anchor): (object, q)}, object by object."""
    result = {}
    for b in range(len(logits)):
        boxes = truth["boxes"][b]
        window = TASK.overlap.inside(POINTS, STRIDES, {"boxes": boxes[None]})[0]
        u = box_ciou(shapes["boxes"][b][None], boxes[:, None]).clamp(min=0)
        t = logits[b].sigmoid()[:, labels[b]].T ** 0.5 * u**6
        claims = {}
        for i in range(len(boxes)):
            inside = [a for a in range(len(POINTS)) if window[i, a] and valid[b, i]]
            for a in sorted(inside, key=lambda a, i=i: -t[i, a])[:topk]:
                claims.setdefault(a, []).append(i)
        owners = {}
        for a, claimers in claims.items():
            holders = [i for i in range(len(boxes)) if window[i, a] and valid[b, i]]
            owners[a] = claimers[0] if len(claimers) == 1 else max(holders, key=lambda i, a=a: u[i, a])
        if single:
            best = {}
            for a, i in owners.items():
                if i not in best or t[i, a] > t[i, best[i]]:
                    best[i] = a
            owners = {a: i for i, a in best.items()}
        for a, i in owners.items():
            mine = [x for x, owner in owners.items() if owner == i]
            q = t[i, a] * max(u[i, x] for x in mine) / (max(t[i, x] for x in mine) + 1e-9)
            result[b, a] = (i, float(q))
    return result


def as_dict(assignment, only_positive=False):
    result = {}
    for b, p in assignment.valid.nonzero().tolist():
        key = (b, assignment.anchor[b, p].item())
        assert key not in result, "an anchor teaches one object only"
        result[key] = (assignment.object[b, p].item(), assignment.weight[b, p].item())
    return {key: value for key, value in result.items() if value[1] > 0} if only_positive else result


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("objects", [1, 4, 12, 40])
def test_equals_the_slow_one(objects, single):
    arguments = scene(objects, seed=objects)
    ours = as_dict(run(*arguments, topk=7 if single else 10, single=single), only_positive=True)
    theirs = {key: value for key, value in by_prose(*arguments, 7 if single else 10, single).items() if value[1] > 0}
    assert len(theirs) >= objects
    assert {key: value[0] for key, value in ours.items()} == {key: value[0] for key, value in theirs.items()}
    for key, (_, q) in theirs.items():
        assert ours[key][1] == pytest.approx(q, rel=1e-4, abs=1e-9)


def test_the_crowd_has_contested_anchors():
    *_, truth = scene(40, seed=40)
    window = TASK.overlap.inside(POINTS, STRIDES, truth)
    assert (window.sum(1) > 1).float().mean() > 0.5


def test_chunks_change_nothing(monkeypatch):
    arguments = scene(40, seed=7)
    whole = run(*arguments, topk=10)
    monkeypatch.setattr(aligned, "CHUNK", 2 * len(POINTS) * 3)  # three objects at a time
    parts = run(*arguments, topk=10)
    for name in ("anchor", "object", "weight", "valid"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))


def test_padding_rows_change_nothing():
    logits, shapes, labels, valid, truth = scene(5, seed=3)
    pad = lambda x: torch.cat((x, torch.zeros_like(x)), 1)  # noqa: E731
    short = as_dict(run(logits, shapes, labels, valid, truth, topk=10))
    long = as_dict(run(logits, shapes, pad(labels), pad(valid), {"boxes": pad(truth["boxes"])}, topk=10))
    assert len(short) > 20
    assert short == long


def test_one_positive_an_object():
    assignment = run(*scene(8, seed=5, side=30), topk=7, single=True)
    for b in range(2):
        owners = assignment.object[b][assignment.valid[b]].tolist()
        assert len(owners) == len(set(owners)) >= 7


def test_no_objects():
    logits, shapes, labels, valid, truth = scene(4, seed=1)
    assignment = run(logits, shapes, labels, torch.zeros_like(valid), truth, topk=10)
    assert not assignment.valid.any()
    assert assignment.weight.sum() == 0


def test_objects_far_from_every_prediction_still_have_candidates():
    logits, _, labels, valid, truth = scene(4, seed=2)
    away = {"boxes": torch.full((2, len(POINTS), 4), 1000.0) + torch.tensor([0.0, 0, 5, 5])}
    assignment = run(logits, away, labels, valid, truth, topk=10)
    assert all((assignment.valid & (assignment.object == i)).any() for i in range(4))
    assert assignment.weight.sum() == 0


@pytest.mark.parametrize(("side", "count"), [(3.0, 4), (7.999, 4), (8.0, 4), (8.001, 4), (15.0, 4), (17.0, 4), (25.5, 9)])
def test_candidate_windows_of_small_objects(side, count):
    """Sides below 16 px are widened to 16, which holds 2 x 2 centres of stride 8 wherever the object is (but on the grid itself)."""
    centre = torch.tensor([50.3, 61.7])
    box = torch.cat((centre - side / 2, centre + side / 2))[None, None]
    inside = TASK.overlap.inside(POINTS, STRIDES, {"boxes": box})[0, 0]
    assert inside[STRIDES.eq(8)].sum() == count
    one_sided = box + torch.tensor([-30.0, 0, 30, 0])
    assert TASK.overlap.inside(POINTS, STRIDES, {"boxes": one_sided})[0, 0].sum() > inside.sum()

"""The kernel of assignment, interpreted on the CPU, against the comparison of all with all. A process of its own: TRITON_INTERPRET=1
must be set before triton is imported."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import torch

from pellucid.assign import aligned, kernels
from pellucid.tasks import TASKS

sys.path.insert(0, str(Path(__file__).parent))
from scenes import C, scene

kernels.BLOCK = 256  # of 336 anchors


def both(given, k=10):
    """Claims by comparing all with all, and by the kernel."""
    theirs = aligned._compare_all(*given, k)
    ours = aligned._claim_inside(kernels, *given, k)
    return theirs, ours


def agree(theirs, ours, pairs=60):
    """The same slots, candidates and holders; where u of some object is no number, the kernel holds by the others."""
    assert theirs.valid.sum() >= pairs, theirs.valid.sum()
    assert torch.equal(theirs.valid, ours.valid)
    told = theirs.valid & (theirs.similarity > 0)  # candidates whose t is 0 come in any order
    assert torch.equal(theirs.anchor[told], ours.anchor[told])
    torch.testing.assert_close(ours.similarity[theirs.valid], theirs.similarity[theirs.valid], atol=1e-5, rtol=0)
    known = theirs.best == theirs.best
    torch.testing.assert_close(ours.best[known], theirs.best[known], atol=1e-5, rtol=0)
    assert (ours.best == ours.best).all()
    assert torch.equal(theirs.holder[known], ours.holder[known])


def teach_alike(given, topk, single):
    """The assignment after `align`, both ways."""
    chosen = []
    for claim in (aligned._compare_all, lambda *rest: aligned._claim_inside(kernels, *rest)):
        whole, aligned._claim = aligned._claim, claim
        chosen.append(aligned.align(*given, topk, single))
        aligned._claim = whole
    theirs, ours = chosen
    told = theirs.weight > 0
    assert told.sum() > (4 if single else 40)
    assert torch.equal(told, ours.weight > 0)
    for name in ("anchor", "object", "valid"):
        assert torch.equal(getattr(theirs, name)[told], getattr(ours, name)[told])
    torch.testing.assert_close(ours.weight, theirs.weight, atol=1e-5, rtol=1e-4)


def tasks_agree(name):
    task = TASKS[name]()
    *given, overlap = scene(task)
    agree(*both((*given, replace(overlap, far=True)), 7))
    teach_alike(scene(task, 1, objects=5), 10, False)
    teach_alike(scene(task, 2, objects=5), 7, True)
    agree(*both(scene(task, 3, objects=12, reach=30.0)), pairs=60)


def logits_lie_anywhere():
    dense, *rest = scene(TASKS["detect"](), 4)
    for logits in (dense.outputs["cls"].mT.contiguous().mT, dense.outputs["cls"].half(), dense.outputs["cls"].repeat(1, 1, 2)[..., :C]):
        agree(*both((replace(dense, outputs={"cls": logits}), *rest)))


def nobody_there():
    for name in TASKS:
        dense, shapes, shared, targets, overlap = scene(TASKS[name](), 5, objects=5)
        targets = replace(targets, valid=targets.valid & torch.tensor([[False], [True]]))  # an empty image
        theirs, ours = both((dense, shapes, shared, targets, overlap))
        agree(theirs, ours, 20)
        assert not ours.valid[0].any()
        assert (ours.best[0] == -1).all()
        targets = replace(targets, valid=torch.zeros_like(targets.valid))
        _, ours = both((dense, shapes, shared, targets, overlap))
        assert not ours.valid.any()
        assert (ours.best == -1).all()


def equals_go_to_the_first():
    """One box predicted everywhere, one logit: every candidate of an object is as good; the same object twice."""
    dense, shapes, shared, targets, overlap = scene(TASKS["detect"](), 6)
    boxes = targets.boxes.clone()
    boxes[:, 1] = boxes[:, 0] = torch.tensor([20.0, 20, 90, 90])
    targets = replace(targets, boxes=boxes, labels=torch.zeros_like(targets.labels))
    shapes = {"boxes": boxes[:, :1].expand(-1, len(dense.points), -1)}
    dense = replace(dense, outputs={"cls": torch.zeros_like(dense.outputs["cls"])})
    ours = aligned._claim_inside(kernels, dense, shapes, shared, targets, overlap, 10)
    inside = overlap.inside(dense.points, dense.strides, targets.truth)[:, 0]
    for image in range(len(boxes)):
        assert ours.anchor[image, 0].tolist() == ours.anchor[image, 1].tolist() == inside[image].nonzero()[:10, 0].tolist()
        assert (ours.holder[image][inside[image]] == 0).all()


def what_is_no_number_harms_nobody():
    for name in TASKS:
        dense, shapes, shared, targets, overlap = scene(TASKS[name](), 7, objects=5)
        shapes = {kind: value.clone() for kind, value in shapes.items()}
        for kind in shapes:
            flat = shapes[kind].flatten(2)
            flat[:, ::9, 0], flat[:, 1::9, 1] = math.nan, math.inf
            flat[:, 2::9, 2], flat[:, 3::9, 3] = -math.inf, math.nan
            flat[:, 4::9], flat[:, 5::9, 2] = math.nan, 1e30
            flat[:, 6::9, 2:4] -= 300  # inverted
            shapes[kind] = flat.view_as(shapes[kind])
        agree(*both((dense, shapes, shared, targets, overlap)), pairs=20)
        dense.outputs["cls"][:, ::5] = math.nan  # such an anchor takes up a slot that teaches nobody
        dense.outputs["cls"][:, 1::5], dense.outputs["cls"][:, 2::5] = math.inf, -math.inf
        agree(*both((dense, shapes, shared, targets, overlap)), pairs=5)


def degenerate_objects():
    """Tiny, flat, inverted and huge boxes."""
    for name in TASKS:
        dense, shapes, shared, targets, overlap = scene(TASKS[name](), 8, objects=5)
        boxes, rboxes = targets.boxes.clone(), targets.extras["rboxes"].clone()
        boxes[:, 0] = torch.tensor([50.0, 50, 50.5, 50.5])
        boxes[:, 1], boxes[:, 2] = torch.tensor([30.0, 64, 90, 64]), torch.tensor([90.0, 90, 40, 40])
        boxes[:, 3] = torch.tensor([-500.0, -500, 900, 900])
        rboxes[:, 0], rboxes[:, 1] = torch.tensor([50.0, 50, 1.9, 1.9, 0]), torch.tensor([64.0, 64, 96, 2, math.pi / 2])
        rboxes[:, 2], rboxes[:, 3] = torch.tensor([64.0, 64, 64, 32, 0]), torch.tensor([64.0, 64, 1400, 900, 1])
        for kind, true in (("boxes", boxes), ("rboxes", rboxes)):
            if kind in shapes:  # else all of the huge one's candidates would be as bad
                shapes[kind][:, ::3] = true[:, 3:4] + torch.randn(shapes[kind][:, ::3].shape, generator=torch.Generator().manual_seed(0))
        targets = replace(targets, boxes=boxes, extras={**targets.extras, "rboxes": rboxes})
        agree(*both((dense, shapes, shared, targets, overlap)), pairs=20)


if __name__ == "__main__":
    for task in TASKS:
        assert TASKS[task]().overlap.form is not None
        tasks_agree(task)
    logits_lie_anywhere()
    nobody_there()
    equals_go_to_the_first()
    what_is_no_number_harms_nobody()
    degenerate_objects()
    print("kernels agree")

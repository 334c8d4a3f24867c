"""The kernel of assignment on a GPU at real size: what comparing all with all gives, the same twice and in a recording, and fast."""

from dataclasses import replace

import pytest
import torch

from pellucid.assign import aligned
from pellucid.geometry.boxes import box_iou
from pellucid.tasks import TASKS
from tests.assign.scenes import scene

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")]
BATCH, OBJECTS, SIDE, K = 16, 128, 640, 10
SEEN = 1e-9  # t above which candidates are told apart


def placed(name, dtype=torch.float32, objects=OBJECTS, reach=120.0):
    """A scene on the device; masks count where boxes meet, so that candidates of t 0, which come in any order, are all alike."""
    dense, shapes, shared, targets, overlap = scene(TASKS[name](), 0, objects, reach, BATCH, SIDE)
    if overlap.refine is not None:
        overlap = replace(overlap, refine=lambda rows, near, truth: _near(rows, truth) * TASKS[name]().overlap.refine(rows, near, truth))
    outputs = {key: value.cuda().to(dtype) for key, value in dense.outputs.items()}
    dense = replace(dense, outputs=outputs, points=dense.points.cuda(), strides=dense.strides.cuda())
    shapes, shared = ({key: value.cuda() for key, value in part.items()} for part in (shapes, shared))
    return dense, shapes, shared, targets.to("cuda"), overlap


def _near(rows, truth):
    return box_iou(rows["boxes"], truth["boxes"][:, :, None]) > 0.3


def by_kernel(given, k=K):
    kernels = aligned._kernels()
    assert kernels is not None
    return aligned._claim_inside(kernels, *given, k)


def parts(claims):
    return [getattr(claims, name) for name in ("anchor", "similarity", "valid", "best", "holder")]


def ranked(given, claims):
    """t of the slots, and -1 where there is no candidate, (B, N, k)."""
    dense, _, _, targets, _ = given
    labels = targets.labels.repeat_interleave(claims.anchor.shape[2], 1)
    score = aligned._scores(dense.outputs["cls"], claims.anchor.flatten(1), labels).view_as(claims.similarity)
    return torch.where(claims.valid, score * claims.similarity**6, -1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_kernel_gives_what_comparing_all_gives(name, dtype):
    given = placed(name, dtype)
    ours, theirs = by_kernel(given), aligned._compare_all(*given, K)
    our_t, their_t = ranked(given, ours), ranked(given, theirs)
    seen = their_t > SEEN
    assert seen.sum() > 3 * BATCH * OBJECTS
    assert not (ours.valid & ~given[3].valid[..., None]).any()
    torch.testing.assert_close(our_t.clamp(min=SEEN), their_t.clamp(min=SEEN), rtol=1e-3, atol=SEEN)
    same = seen & (ours.anchor == theirs.anchor)
    swapped = 1 - same.sum() / seen.sum()
    u_error = (ours.similarity - theirs.similarity)[same].abs().max()
    best_error = (ours.best - theirs.best).abs()
    told = theirs.best > 1e-4
    held = (ours.holder != theirs.holder)[told].float().mean()
    print(f"{name} {dtype}: u to {u_error:.1e}, best to {best_error.max():.1e}, {swapped:.1e} of slots and {held:.1e} of holders differ")
    assert u_error < 1e-5
    assert (best_error > 1e-5).float().mean() < 1e-4
    assert swapped < 1e-3
    assert held < 1e-3


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_assignment_is_the_same(name, single, monkeypatch):
    given = placed(name)
    ours = aligned.align(*given, 7 if single else K, single)
    monkeypatch.setattr(aligned, "_claim", aligned._compare_all)
    theirs = aligned.align(*given, 7 if single else K, single)
    empty = torch.zeros(BATCH, given[0].points.shape[0], device="cuda")
    weight = [empty.scatter_add(1, found.anchor, found.weight) for found in (ours, theirs)]
    owner = [empty.scatter_add(1, found.anchor, (found.object + 1.0) * (found.weight > SEEN)) for found in (ours, theirs)]
    taught = weight[1] > SEEN
    assert taught.sum() > BATCH * OBJECTS / 4
    other = ((weight[0] - weight[1]).abs() > 1e-4)[taught].float().mean()
    moved = (owner[0] != owner[1])[taught].float().mean()
    print(f"{name} single={single}: {taught.sum()} pairs, {other:.1e} with another weight, {moved:.1e} with another object")
    assert other < 2e-3
    assert moved < 2e-3


@pytest.mark.parametrize("name", sorted(TASKS))
def test_it_gives_the_same_bits_twice_and_in_a_recording(name):
    given = placed(name, torch.float16)
    eager, again = parts(by_kernel(given)), parts(by_kernel(given))
    assert all(torch.equal(a, b) for a, b in zip(eager, again, strict=True))
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded = parts(by_kernel(given))
    for value in recorded:
        value.zero_()
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(eager, recorded, strict=True))


def test_large_pictures_and_every_rung():
    """1280 px have 33,600 anchors; the rungs of the ladder share the compiled kernel."""
    for objects in (4, 8, 64):
        dense, shapes, _, targets, overlap = scene(TASKS["detect"](), 1, objects, 700.0, 2, 1280)
        dense = replace(dense, outputs={"cls": dense.outputs["cls"].cuda()}, points=dense.points.cuda(), strides=dense.strides.cuda())
        given = dense, {"boxes": shapes["boxes"].cuda()}, {}, targets.to("cuda"), overlap
        ours, theirs = by_kernel(given), aligned._compare_all(*given, K)
        assert (ranked(given, theirs) > SEEN).sum() > objects
        torch.testing.assert_close(ranked(given, ours).clamp(min=SEEN), ranked(given, theirs).clamp(min=SEEN), rtol=1e-3, atol=SEEN)


def replayed(work):
    """Milliseconds of one replay of the recorded work, and of one eager call."""
    work()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        work()
    times = []
    for again in (graph.replay, work):
        again()
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            again()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 10)
    return times


@pytest.mark.parametrize("name", sorted(TASKS))
def test_it_is_fast_and_small(name):
    """Both branches' claims; what a second look costs is the same both ways."""
    given = placed(name, torch.float16)
    if given[4].refine is not None:
        given = (*given[:4], TASKS[name]().overlap)
    fast, fast_eager = replayed(lambda: (by_kernel(given, 10), by_kernel(given, 7)))
    slow, slow_eager = replayed(lambda: (aligned._compare_all(*given, 10), aligned._compare_all(*given, 7)))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    by_kernel(given)
    torch.cuda.synchronize()
    memory = torch.cuda.max_memory_allocated() - held
    print(f"{name}: kernel {fast:.3f} ms (eager {fast_eager:.2f}), all {slow:.2f} ms (eager {slow_eager:.2f}), {memory / 1e6:.1f} MB")
    if given[4].refine is None:
        assert fast < slow / 5
        assert memory < BATCH * OBJECTS * given[0].points.shape[0]  # not a byte for each object and anchor

"""Recorded steps on a GPU: what must be caught, skips, rungs, memory, another device."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from pellucid.numerics import islands
from pellucid.numerics.noise import deterministic, measure, table
from pellucid.numerics.tf32 import tf32_off
from pellucid.rules import STRIDES
from pellucid.tasks import TASKS
from pellucid.train import capture
from pellucid.train.floor import observed, primed, steps_of, yardstick
from pellucid.train.step import TrainStep
from pellucid.types import Regions
from tests.gpu.test_tasks import prepare
from tests.train.test_capture import alike, stopped_and_resumed
from tests.train.test_floor import Leaky, batch_of, make

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")]
MODES = ["loss", "network", "loss+network", "step"]
DRAWS = 20


def batches_of(name, count=1, device="cuda"):
    return [batch_of(name, seed).to(device) for seed in range(count)]


def captured(name, precision, mode, count=1, device="cuda"):
    """A step in its first state with everything recorded."""
    plain = make(name, precision, device=device)
    step = TrainStep(plain.detector, TASKS[name](), replace(plain.config, capture=mode), 3, precision, 8)
    return primed(step, batches_of(name, 1, device)) if mode != "none" else step


@cache
def floor_of(name, precision, count=1):
    with tf32_off(), deterministic():
        return measure(steps_of(partial(make, name, precision, device="cuda"), batches_of(name, count)), DRAWS, yardstick(precision))


def verdict_of(name, precision, mode, count=1):
    with tf32_off(), deterministic():
        seen = steps_of(partial(captured, name, precision, mode), batches_of(name, count))()
    return floor_of(name, precision, count).judge(f"{name} {precision} {mode}", seen)


class Inside(capture.Graph):
    """A recording made inside autocast, its backward pass too."""

    def __init__(self, work, **how):
        def inside():
            with torch.autocast("cuda", torch.float16):
                return work()

        super().__init__(inside, **how)


def test_an_open_island_is_caught_in_a_network_recorded_inside_autocast(monkeypatch):
    """The closed island keeps its bits there; the open one does not."""
    monkeypatch.setattr(capture, "Graph", Inside)
    closed = verdict_of("detect", "16", "network")
    monkeypatch.setattr(islands, "_Island", Leaky)
    leaky = verdict_of("detect", "16", "network")
    print(table([closed, leaky]))
    assert closed.row("loss").value == 0
    assert closed.row("whole").ratio <= 1
    assert leaky.row("whole").value > closed.row("whole").value


def test_a_stale_rate_is_caught(monkeypatch):
    floor = floor_of("detect", "32", 4)
    step = captured("detect", "32", "step")
    monkeypatch.setattr(type(step.updater), "set_rates", lambda self: None)
    with tf32_off(), deterministic():
        verdict = floor.judge("stale", tuple(observed(step, batch) for batch in batches_of("detect", 4)))
    print(table([verdict]))
    assert not verdict.passed


@pytest.mark.parametrize("mode", ["loss+network", "step"])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_real_batches_of_several_rungs_with_validation_between(name, accumulate, mode):
    """Partial batches, empty pictures, other rates and shares, a forward of the average in between: close to eager all along."""
    losses = {}
    for how in ("none", mode):
        step, batches = prepare(name, "32", accumulate, batches=4, size=320, capture=how)
        small = [part_of(batch, 3) for batch in batches[:2]]
        told = []
        with tf32_off(), deterministic():
            for number, batch in enumerate([*batches, *small, *batches, *small]):
                step.share.fill_(0.8 - 0.05 * number)
                step.clear_losses()
                step(batch, last=number % 6 == 5)
                with torch.no_grad():
                    step.ema.model(batch.images)
                told.append(torch.stack(list(step.losses().values())).sum().item())
        losses[how] = torch.tensor(told)
    gap = (losses[mode] - losses["none"]).abs() / losses["none"].abs().clamp(min=1)
    print(name, accumulate, mode, gap.tolist())
    assert gap[0] < 1e-5
    assert gap.max() < 0.05


@pytest.mark.parametrize("mode", ["loss", "step"])
def test_parts_of_a_window_may_be_recorded_in_any_order(mode):
    """The first part of the last windows is recorded after the second, whose middles then lie where it keeps what it gave."""
    states = {}
    for how in ("none", mode):
        step, batches = prepare("detect", "bf16", accumulate=2, batches=3, size=320, capture=how)
        few, many = batches[0], widened(batches[1], 4 * batches[1].targets.valid.shape[1])
        assert few.targets.valid.shape != many.targets.valid.shape
        with tf32_off(), deterministic():
            for batch in [few] * 4 + [many, few] * 4:
                step(batch, last=False)
        assert step.updater.steps == 6
        states[how] = step.detector.state_dict()
    assert [key for key, value in states["none"].items() if not torch.equal(value, states[mode][key])] == []


@pytest.mark.parametrize("name", ["detect", "segment"])
def test_ignored_regions_are_recorded_and_others_come_by_replay(name):
    states = {}
    for how in ("none", "step"):
        step, batches = prepare(name, "32", batches=3, size=320, capture=how)
        anchors = sum((320 // stride) ** 2 for stride in STRIDES)
        with tf32_off(), deterministic():
            for number in range(8):
                batch = batches[number % 3]
                cells = torch.zeros(len(batch), 4, anchors, dtype=torch.bool, device="cuda")
                cells[:, 0, 100 * number :: 2] = True
                labels = torch.zeros(len(batch), 4, dtype=torch.int64, device="cuda")  # the samples have one class
                step(replace(batch, targets=replace(batch.targets, ignored=Regions(labels, cells))))
        states[how] = step.detector.state_dict()
    assert [key for key, value in states["none"].items() if not torch.equal(value, states["step"][key])] == []


@pytest.mark.parametrize("mode", ["loss", "network", "loss+network"])
def test_a_loss_that_is_still_held_breaks_no_recording(mode):
    step, batches = prepare("detect", "32", batches=1, size=320, capture=mode)
    held = []
    for _ in range(4):
        for loss in step.losses_of(batches[0], last=True):
            loss.backward()
            step.collect()
            held.append(loss)
        step.prepare()
        step.updater.optimizer.step()
        step.conclude()
    assert len(held) == 4
    assert all(torch.isfinite(loss) for loss in held)


def widened(batch, rows):
    """The same objects in more rows."""

    def padded(tensor):
        return torch.cat((tensor, tensor.new_zeros(len(tensor), rows - tensor.shape[1], *tensor.shape[2:])), 1)

    return replace(batch, targets=batch.targets.replaced(padded))


def part_of(batch, count):
    targets = batch.targets.replaced(lambda tensor: tensor[:count].clone())
    return type(batch)(batch.images[:count].clone(), targets, batch.metas[:count])


@pytest.mark.parametrize("mode", ["loss", "step"])
def test_infinities_are_skipped_as_eager_does(mode):
    skipped, scales = [], []
    for how in ("none", mode):
        step = captured("detect", "16", how)
        for number in range(6):
            if number == 3:
                step.scaler.scale.fill_(1e30)
            if number == 4:
                step.scaler.scale.fill_(256.0)
            step(batch_of("detect", number).to("cuda"))
        skipped.append(step.skipped.item())
        scales.append(step.scaler.scale.item())
    assert skipped == [1, 1]
    assert scales == [256, 256]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizer", ["musgd", "adamw"])
def test_a_resumed_run_goes_on_alike(optimizer, mode):
    with tf32_off(), deterministic():
        first, second = stopped_and_resumed(mode, optimizer, "bf16", "cuda")
    assert alike(first, second)
    assert all(group["lr"].is_cuda for group in second.updater.optimizer.param_groups)


def test_memory_is_flat_over_a_thousand_replays():
    step = captured("segment", "bf16", "step")
    batches = batches_of("segment", 3)
    for batch in batches:
        step(batch)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for number in range(1000):
        step(batches[number % 3])
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before
    assert all(torch.isfinite(value).all() for value in step.detector.state_dict().values())


def test_a_replayed_window_never_waits_for_the_host():
    step, batches = captured("detect", "16", "step"), batches_of("detect", 3)
    step(batches[0])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches:
            step(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def on_first(gradients):
    return {name: value.to("cuda:0") for name, value in gradients.items()}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device on this machine")
@pytest.mark.parametrize("mode", MODES)
def test_another_device(mode):
    with tf32_off(), deterministic():
        here = steps_of(partial(captured, "detect", "32", mode), batches_of("detect"))()
        there = steps_of(partial(captured, "detect", "32", mode, device="cuda:1"), batches_of("detect", device="cuda:1"))()
    moved = tuple(replace(seen, loss=seen.loss.to("cuda:0"), gradients=on_first(seen.gradients)) for seen in there)
    verdict = floor_of("detect", "32").judge(f"cuda:1 {mode}", moved)
    print(table([verdict]))
    assert verdict.passed
    assert torch.equal(here[0].loss, moved[0].loss)

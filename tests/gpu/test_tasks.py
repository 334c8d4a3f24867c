"""Every task on a GPU: no wait for the host, finite values in half precision on real pictures, the same loss as on a CPU."""

import copy
from dataclasses import astuple

import pytest
import torch

from pellucid.assign.aligned import align
from pellucid.augment.apply import apply
from pellucid.config import TrainConfig
from pellucid.numerics.tf32 import tf32_off
from pellucid.tasks import TASKS
from pellucid.train import criterion
from pellucid.train.run import TrainingData, loading_of, open_all
from pellucid.train.step import TrainStep
from pellucid.zoo import make_task

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")]
SAMPLES = {"detect": "trees", "segment": "nuclei", "pose": "quokka", "obb": "nuclei-obb"}  # real pictures that ship
STEPS = 200


@pytest.fixture(autouse=True)
def waiting_is_allowed_again():
    yield
    torch.cuda.set_sync_debug_mode("default")


def prepare(name: str, precision: str, accumulate: int = 1, batches: int = 8, size: int = 320, **settings):
    given = {"batch": 8, "imgsz": size, "accumulate": accumulate, "precision": precision, "workers": 0, **settings}
    config = TrainConfig(model=f"{name}-n", data=SAMPLES[name], **given)
    dataset, detector, card = open_all(config)
    loader = TrainingData(dataset, make_task(card), **loading_of(config)).train_dataloader()
    packed = []
    for epoch in range(batches):
        loader.keys.set_epoch(epoch)
        packed += [next(iter(loader))]
    detector = detector.to("cuda", memory_format=torch.channels_last)
    step = TrainStep(detector, make_task(card), config, card.nc, precision, STEPS)
    return step, [apply(part.to("cuda")) for part in packed]


def test_every_task_has_a_sample():
    assert set(SAMPLES) == set(TASKS)


@pytest.mark.parametrize("precision", ["32", "16", "bf16"])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_window_never_waits_for_the_host(name, precision):
    step, batches = prepare(name, precision, accumulate=2, batches=4)
    torch.cuda.synchronize()
    for number, batch in enumerate(batches):
        if number == 2:
            torch.cuda.set_sync_debug_mode("error")
        step(batch, last=False)
    torch.cuda.set_sync_debug_mode("default")
    assert step.updater.steps == 2
    assert step.skipped.item() == 0


@pytest.mark.parametrize("precision", ["16", "bf16"])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_two_hundred_steps_are_finite(name, precision):
    step, batches = prepare(name, precision)
    assert all(batch.targets.valid.any() for batch in batches)
    losses = []
    for number in range(STEPS):
        step.clear_losses()
        step(batches[number % len(batches)])
        losses.append(torch.stack(list(step.losses().values())))
    losses = torch.stack(losses)
    assert torch.isfinite(losses).all()
    assert all(torch.isfinite(value).all() for value in step.ema.model.state_dict().values())
    print(
        f"{name} {precision}: skipped {step.skipped.item():.0f}, scale {step.scaler.scale.item():.0f}, "
        f"losses {losses[:8].mean(0).tolist()} -> {losses[-8:].mean(0).tolist()} ({', '.join(step.names)})"
    )
    assert step.skipped.item() == 0
    assert losses[-8:].sum() < losses[:8].sum()


def loss_on(device, dtype, step, batch):
    """The first loss of the same weights and pixels."""
    detector = copy.deepcopy(step.detector).to(device, dtype)
    moved = batch.replaced(lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype))
    return TrainStep(detector, step.criterion.task, step.config, 1, "32", STEPS).forward(moved).item()


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_cpu_and_gpu_give_one_loss_in_float64(name):
    step, batches = prepare(name, "32", batches=1, size=128)
    ours, theirs = (loss_on(device, torch.float64, step, batches[0]) for device in ("cuda", "cpu"))
    assert theirs == pytest.approx(ours, rel=1e-6)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_cpu_and_gpu_give_one_loss_of_the_same_pairs(name, monkeypatch):
    """In float32 a rounding may choose another pair of two that are all but equal, which says nothing of the losses."""
    step, batches = prepare(name, "32", batches=1, size=128)
    pairs = []

    def noted(*given):
        pairs.append(align(*given))
        return pairs[-1]

    monkeypatch.setattr(criterion, "align", noted)
    theirs = loss_on("cpu", torch.float32, step, batches[0])
    assert all(part.valid.any() for part in pairs)
    of_host = iter(pairs)
    monkeypatch.setattr(criterion, "align", lambda *given: type(pairs[0])(*(part.cuda() for part in astuple(next(of_host)))))
    with tf32_off():
        ours = loss_on("cuda", torch.float32, step, batches[0])
    assert next(of_host, None) is None
    assert theirs == pytest.approx(ours, rel=1e-3)


def test_masks_of_a_crowd_train_within_8_gib():
    step, batches = prepare("segment", "bf16", batches=1, size=640)
    batch = batches[0].replaced(lambda tensor: torch.cat([tensor] * (1 + 8 // len(tensor))))  # the sample has few pictures
    assert len(batch.images) >= 8
    assert batch.targets.valid.sum() > 100
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        step(batch)
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"peak {peak:.2f} GiB, rows {batch.targets.labels.shape[1]}")
    assert peak < 8

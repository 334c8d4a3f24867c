"""Pixels: colour against colorsys, mixup, chunks, and the same picture on CPU and GPU."""

import colorsys

import pytest
import torch

from pellucid.augment import apply as room
from pellucid.augment.apply import apply
from pellucid.augment.color import shift_hsv
from pellucid.augment.presets import AugmentConfig
from pellucid.data.collate import collate
from pellucid.data.dataset import TrainingSet

from .fakes import noise

S = 64
STRONG = AugmentConfig(mixup=0.5, scale=0.9, degrees=15, shear=5, flipud=0.5, hsv_h=0.5)


def packed(config=STRONG, count=24):
    memory = noise(30, S)
    data = TrainingSet(memory, memory, config, S, 0)
    return collate([data[0, row] for row in range(count)], size=S, extras=lambda instances, size: {}, warped=True)


def test_hsv_equals_colorsys():
    generator = torch.Generator().manual_seed(0)
    colors = torch.randint(0, 256, (300, 3), generator=generator).float()
    colors[:8] = torch.tensor([[0, 0, 0], [255, 255, 255], [9, 9, 9], [255, 0, 0], [0, 255, 0], [0, 0, 255], [200, 200, 0], [0, 9, 9]])
    for turn, saturate, brighten in ((0.0, 1.0, 1.0), (0.2, 1.5, 0.7), (-0.4, 0.4, 1.4), (0.5, 1.0, 1.0)):
        changed = shift_hsv(colors[:, :, None, None], torch.tensor([[turn, saturate, brighten]]).expand(300, 3))[:, :, 0, 0]
        for before, after in zip(colors.tolist(), changed.tolist(), strict=True):
            h, s, v = colorsys.rgb_to_hsv(*(c / 255 for c in before))
            right = colorsys.hsv_to_rgb((h + turn) % 1, min(s * saturate, 1), min(v * brighten, 1))
            assert max(abs(a - b * 255) for a, b in zip(after, right, strict=True)) < 0.02


def test_images_do_not_depend_on_how_they_are_chunked(monkeypatch):
    sent = packed()
    whole = apply(sent)
    monkeypatch.setattr(room, "_CHUNK_BYTES", {"cpu": 1})
    single = apply(sent)
    assert len(sent.mixed) > 3
    assert whole.images.dtype == torch.uint8
    assert whole.images.shape == (24, 3, S, S)
    assert whole.images.float().std() > 20
    assert (whole.images.int() - single.images.int()).abs().max() <= 1


def test_mixup_blends_by_its_share():
    config = AugmentConfig(mixup=1, hsv_h=0, hsv_s=0, hsv_v=0)
    memory = noise(30, S)
    sample = TrainingSet(memory, memory, config, S, 0)[0, 0]
    both = [collate([_alone(sample, layer)], size=S, extras=lambda i, s: {}, warped=True) for layer in sample.layers]
    first, second = (apply(part).images.float() for part in both)
    mixed = apply(collate([sample], size=S, extras=lambda i, s: {}, warped=True)).images.float()
    assert 0.2 < sample.share < 0.8
    assert (mixed - (sample.share * first + (1 - sample.share) * second)).abs().max() <= 1.01
    assert (first - second).abs().mean() > 10


def _alone(sample, layer):
    return type(sample)((layer,), 1.0, sample.color, sample.instances, sample.meta)


def test_mixup_teaches_the_objects_of_both():
    memory = noise(30, S)
    data = TrainingSet(memory, memory, AugmentConfig(mosaic=0, mixup=1, scale=0, translate=0), S, 0)
    assert all(len(data[0, row].instances) == 6 for row in range(5))
    assert len(set(data[0, 2].instances.labels.tolist())) == 2


def test_a_batch_without_objects_or_of_one_picture():
    memory = noise(1, S, boxes=0)
    data = TrainingSet(memory, memory, STRONG, S, 0)
    batch = apply(collate([data[0, 0]], size=S, extras=lambda instances, size: {}, warped=True))
    assert batch.targets.boxes.shape == (1, 4, 4)
    assert not batch.targets.valid.any()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_equals_cpu_and_never_waits_for_the_host():
    sent = packed()
    on_device = sent.pin_memory().to("cuda")
    apply(on_device)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    torch.set_float32_matmul_precision("high")  # TF32 must not move pixels
    try:
        images = apply(on_device).images
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.set_float32_matmul_precision("highest")
    assert (images.cpu().int() - apply(sent).images.int()).abs().max() <= 1

"""The training step on a GPU: it never waits for the host, and a crowd fits in memory."""

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from torch.utils.data import DataLoader

from pellucid.config import TrainConfig
from pellucid.tasks import TASKS
from pellucid.train.module import DetectorModule
from pellucid.train.step import TrainStep
from pellucid.types import Batch, ImageMeta, Targets
from pellucid.zoo import Card, create

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")]
pytestmark.append(pytest.mark.filterwarnings("default"))  # torch announces the debug mode; Lightning advises on workers
CARD = Card("detect", "n", ("a", "b", "c"), (0, 1, 2))


@pytest.fixture(autouse=True)
def waiting_is_allowed_again():
    yield
    torch.cuda.set_sync_debug_mode("default")


def batch_of(images: int, objects: int, size: int, side: float = 60.0) -> Batch:
    g = torch.Generator().manual_seed(0)
    rows = 1 << max(2, (objects - 1).bit_length())
    low = torch.rand(images, rows, 2, generator=g) * (size - side)
    boxes = torch.cat((low, low + 4 + torch.rand(images, rows, 2, generator=g) * side), -1)
    valid = (torch.arange(rows) < objects).repeat(images, 1)
    pixels = torch.randint(256, (images, 3, size, size), dtype=torch.uint8, generator=g)
    metas = tuple(ImageMeta(i, i, "", size, size) for i in range(images))
    return Batch(pixels, Targets(torch.randint(3, (images, rows), generator=g), valid, boxes * valid[..., None]), metas)


class NoSync(Callback):
    """Every synchronisation between the start and the end of a step is an error, from the second step on."""

    def __init__(self) -> None:
        self.guarded = 0

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        assert batch.images.is_cuda
        if batch_idx:
            self.guarded += 1
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("precision", ["32", "16", "bf16"])
@pytest.mark.parametrize("optimizer", ["musgd", "adamw"])
def test_a_step_never_waits_for_the_host(optimizer, precision, tmp_path):
    config = TrainConfig(model="detect-n", data="none", epochs=1, batch=4, accumulate=2, precision=precision, optimizer=optimizer)
    module = DetectorModule(create(CARD, 0), TASKS["detect"](), config, CARD)
    guard = NoSync()
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="gpu", devices=1, max_epochs=1, callbacks=[guard], default_root_dir=tmp_path, **settings)
    before = module.detector.backbone.layers[0].conv.weight.detach().cpu().clone()
    loader = DataLoader([batch_of(4, 10, 320)] * 8, batch_size=None, collate_fn=None)
    trainer.fit(module, loader)
    assert guard.guarded == 7
    assert module.optimizer_steps == 4
    assert module.skipped.item() == 0
    assert not torch.equal(module.detector.backbone.layers[0].conv.weight.detach().cpu(), before)


def test_a_sync_would_be_caught():
    one = torch.ones((), device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="synchroniz"):
        one.item()


def test_a_thousand_objects_train_within_8_gib():
    config = TrainConfig(model="detect-n", data="none", epochs=1, batch=16, accumulate=1)
    detector = create(CARD, 0).to("cuda", memory_format=torch.channels_last)
    step = TrainStep(detector, TASKS["detect"](), config, CARD.nc, "bf16", 100)
    batch = batch_of(16, 1000, 640, side=20).to("cuda")
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        step(batch)
    peak = torch.cuda.max_memory_allocated() / 2**30
    assert all(torch.isfinite(loss) for loss in step.losses().values())
    assert step.losses()["box"] > 0
    assert peak < 8, f"{peak:.2f} GiB"
    print(f"peak {peak:.2f} GiB")


def test_cpu_and_gpu_give_one_loss():
    batch = batch_of(2, 10, 320)
    config = TrainConfig(model="detect-n", data="none", epochs=1, batch=2, accumulate=1)
    losses = {}
    for device in ("cpu", "cuda"):
        detector = create(CARD, 0).to(device, memory_format=torch.channels_last)
        step = TrainStep(detector, TASKS["detect"](), config, CARD.nc, "32", 100)
        step(batch.to(device))
        losses[device] = {name: value.item() for name, value in step.losses().items()}
    assert losses["cpu"]["box"] > 0
    for name, value in losses["cpu"].items():
        assert losses["cuda"][name] == pytest.approx(value, rel=5e-3), name

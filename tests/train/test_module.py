"""The module in a plain Lightning Trainer, without `train()`."""

import math

import pytest
import torch
from pytorch_lightning import Trainer

from pellucid.config import TrainConfig
from pellucid.data import open_dataset
from pellucid.data.module import DataModule
from pellucid.errors import UsageError
from pellucid.tasks import TASKS
from pellucid.train import optimizer
from pellucid.train.module import DetectorModule, freeze
from pellucid.train.optimizer import make_updater
from pellucid.zoo import Card, create

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*GPU available")


def parts(data, **settings):
    dataset, task = open_dataset(data), TASKS["detect"]()
    config = TrainConfig(model="detect-n", data=str(data), batch=4, imgsz=64, **settings)
    card = Card("detect", "n", dataset.names, dataset.category_ids, 64)
    module = DetectorModule(create(card, 0), task, config, card)
    return module, DataModule(dataset, task, imgsz=64, batch=4)


def test_lightning_trains_and_scores(squares, tmp_path):
    module, data = parts(squares, epochs=2, accumulate=2)
    trainer = Trainer(max_epochs=2, use_distributed_sampler=False, default_root_dir=tmp_path, **QUIET)
    trainer.fit(module, datamodule=data)
    assert module.optimizer_steps == 4  # 3 batches an epoch, two to a window, the last window short
    assert "e2e/box/ap" in trainer.callback_metrics
    assert math.isfinite(trainer.callback_metrics["e2e/box/ap"])
    assert all(name.startswith("detector.") for name in module.state_dict())
    assert any(not torch.equal(a, b) for a, b in zip(module.ema.model.parameters(), module.detector.parameters(), strict=True))


def test_a_second_precision_is_refused(squares, tmp_path):
    module, data = parts(squares, epochs=1)
    trainer = Trainer(
        max_epochs=1, precision="64-true", use_distributed_sampler=False, default_root_dir=tmp_path, num_sanity_val_steps=0, **QUIET
    )
    with pytest.raises(UsageError, match="set precision in the TrainConfig"):
        trainer.fit(module, datamodule=data)


def test_frozen_layers_keep_weights_and_statistics(squares, tmp_path):
    module, data = parts(squares, epochs=1, freeze=3, accumulate=1)
    before = {name: value.clone() for name, value in module.detector.state_dict().items()}
    trainer = Trainer(max_epochs=1, use_distributed_sampler=False, default_root_dir=tmp_path, limit_val_batches=0, **QUIET)
    trainer.fit(module, datamodule=data)
    changed = {name for name, value in module.detector.state_dict().items() if not torch.equal(value, before[name])}
    frozen = tuple(f"backbone.layers.{layer}." for layer in range(3))
    assert not any(name.startswith(frozen) for name in changed)
    assert any(name.startswith("backbone.layers.3.") for name in changed)
    with pytest.raises(UsageError, match="at most 17"):
        freeze(module.detector, 18)


def test_rates_of_a_checkpoint_are_moved_to_the_device_that_trains(monkeypatch):
    moved = []
    monkeypatch.setattr(optimizer, "_place_rates", lambda given, device: moved.append(device))
    updater = make_updater(
        create(Card("detect", "n", ("a",), (0,)), 0), TrainConfig(model="detect-n", data="none", optimizer="adamw"), 1, 100
    )
    updater.optimizer.load_state_dict(updater.optimizer.state_dict())
    assert moved == [torch.device("cpu")]
    monkeypatch.undo()
    optimizer._place_rates(updater.optimizer, torch.device("meta"))
    assert {group["lr"].device.type for group in updater.optimizer.param_groups} == {"meta"}


def test_the_rate_that_is_told_is_the_one_that_lr0_names():
    model = create(Card("detect", "n", ("a", "b"), (0, 1)), 0)
    for name in ("musgd", "adamw"):
        config = TrainConfig(model="detect-n", data="none", optimizer=name, lr0=0.002, warmup_epochs=0)
        updater = make_updater(model, config, 2, 1000)
        updater.set_rates()
        assert float(updater.rate) == pytest.approx(0.002, rel=1e-2)
        assert max(float(group["lr"]) for group in updater.optimizer.param_groups) == pytest.approx(0.006, rel=1e-2)

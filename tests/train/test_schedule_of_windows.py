"""With accumulation and a last window that is short: how many updates there are, and that the rates end where they should."""

import math
from types import SimpleNamespace

import pytest

from pellucid.config import TrainConfig
from pellucid.train import callbacks
from pellucid.train.journal import Journal
from pellucid.train.module import DetectorModule
from pellucid.train.run import TrainingData, fit, loading_of, open_all
from pellucid.train.step import TrainStep
from pellucid.zoo import make_task
from tests.train.conftest import make_squares

EPOCHS = 3


@pytest.mark.parametrize(("batches", "accumulate", "updates"), [(5, 2, 9), (5, 3, 6), (4, 2, 6), (3, 8, 3), (2, 1, 6)])
def test_updates_and_rates(batches, accumulate, updates, tmp_path, monkeypatch):
    data = make_squares(tmp_path / "data", train=2 * batches - 1, val=1)  # the last batch is short too
    monkeypatch.setattr(callbacks, "save", lambda trainer, path: None)
    rates, parts, images = [], [], []

    def prepare(self, real=TrainStep.prepare):
        parts.append(self.window.parts)
        images.append(self.window.images)
        real(self)

    def conclude(self, real=TrainStep.conclude):
        real(self)
        rates.append(float(self.updater.rate))

    monkeypatch.setattr(TrainStep, "prepare", prepare)
    monkeypatch.setattr(TrainStep, "conclude", conclude)
    plain = {"imgsz": 64, "batch": 2, "workers": 0, "device": "cpu", "plots": False, "lr0": 0.01, "lrf": 0.1, "warmup_epochs": 0.0}
    config = TrainConfig(model="detect-n", data=str(data), epochs=EPOCHS, accumulate=accumulate, **plain)
    dataset, detector, card = open_all(config)
    loaded = TrainingData(dataset, make_task(card), **loading_of(config))
    module = DetectorModule(detector, make_task(card), config, card)
    fit(config, module, loaded, Journal(tmp_path, EPOCHS, "e2e/box/ap"), lambda *_, **__: SimpleNamespace(paths={}), None)

    assert math.ceil(batches / accumulate) * EPOCHS == updates
    assert module.optimizer_steps == len(rates) == updates
    last = batches % accumulate or min(accumulate, batches)
    assert parts == [*[accumulate] * (updates // EPOCHS - 1), last] * EPOCHS
    assert sum(images) == (2 * batches - 1) * EPOCHS, "each window counts the images that it has"
    planned = [0.01 * (1 - 0.9 * step / updates) for step in range(updates)]
    assert rates == pytest.approx(planned, rel=1e-4), "the rate falls in a line over the updates that there are"

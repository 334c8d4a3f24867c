"""Lightning's look at the validation data before training never counts: not as the best epoch, not for early stop, not as a row."""

from functools import partial

import pytest
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from pellucid.config import TrainConfig
from pellucid.tasks import TASKS
from pellucid.train import module, run
from pellucid.train.module import DetectorModule
from pellucid.train.run import TrainingData, loading_of, open_all, train
from pellucid.zoo import make_task
from tests.train.conftest import make_kind, make_squares

ROWS = {"detect": "boxes", "segment": "polygons", "pose": "keypoints", "obb": "rboxes"}
BEFORE, EPOCHS = 0.9, [0.1, 0.3, 0.2, 0.2]  # scores: of the weights that training begins with, and after each epoch


def config(data, project, task="detect", **more):
    plain = {"imgsz": 32, "batch": 2, "workers": 0, "device": "cpu", "plots": False, "report": False, "epochs": len(EPOCHS)}
    return TrainConfig(model=f"{task}-n", data=str(data), project=str(project), **{**plain, **more})


@pytest.fixture
def looks(monkeypatch):
    """For each look at the validation data: whether it was Lightning's first."""
    seen, real = [], DetectorModule.on_validation_epoch_start
    monkeypatch.setattr(DetectorModule, "on_validation_epoch_start", lambda self: (seen.append(self.trainer.sanity_checking), real(self)))
    return seen


def test_a_run_scores_epochs_alone(squares, tmp_path, looks, monkeypatch):
    scores = iter(EPOCHS)
    monkeypatch.setattr(run, "_flat", lambda _: {"e2e/box/ap": next(scores)})
    monkeypatch.setattr(run, "Trainer", lambda **given: Trainer(**{**given, "num_sanity_val_steps": 2, "limit_val_batches": 2}))
    monkeypatch.setattr(module.CocoMetric, "compute", lambda self: {"box/ap": BEFORE})
    monkeypatch.setattr(run, "release", lambda *_: None)
    result = train(config(squares, tmp_path, patience=2))
    assert looks[0], "the look before training took place"
    assert (result.epoch, result.value) == (2, 0.3)
    rows = (result.run_dir / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + len(EPOCHS)
    assert next(scores, None) is None, "no score was asked for but after an epoch"


@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_plain_trainer_keeps_the_best_epoch(task, tmp_path, looks, monkeypatch):
    make = make_squares if ROWS[task] == "boxes" else partial(make_kind, kind=ROWS[task])
    settings = config(make(tmp_path / "data", train=2, val=2), tmp_path, task)
    dataset, detector, card = open_all(settings)
    metric = f"e2e/{make_task(card).metrics[0]}/ap"
    scores = iter([BEFORE, *EPOCHS])
    monkeypatch.setattr(module.CocoMetric, "compute", lambda self: {metric.removeprefix("e2e/"): next(scores)})
    keeper = ModelCheckpoint(tmp_path / "kept", "{epoch}", metric, mode="max")
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=len(EPOCHS),
        num_sanity_val_steps=2,
        callbacks=[keeper, EarlyStopping(metric, mode="max", patience=2)],
        use_distributed_sampler=False,
        default_root_dir=tmp_path,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # Lightning's advice on workers
        data = TrainingData(dataset, make_task(card), **loading_of(settings))
        trainer.fit(DetectorModule(detector, make_task(card), settings, card), datamodule=data)
    assert looks == [True] + [False] * len(EPOCHS)
    assert float(keeper.best_model_score) == pytest.approx(0.3)
    assert "epoch=1" in keeper.best_model_path

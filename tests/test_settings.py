"""Every setting does something: each is changed, and what comes out differs, or the change is refused."""

from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch

from pellucid.augment.apply import apply
from pellucid.augment.presets import PRESETS, AugmentConfig
from pellucid.config import AUGMENT_FIELDS, PredictConfig, TrainConfig, ValConfig
from pellucid.errors import UsageError
from pellucid.model import predict, validate
from pellucid.train import callbacks
from pellucid.train.journal import Journal
from pellucid.train.module import DetectorModule
from pellucid.train.run import TrainingData, fit, loading_of, open_all
from pellucid.zoo import Card, create, make_task
from tests.train.conftest import make_kind, make_squares

BASE = {
    "model": "detect-n",
    "epochs": 2,
    "batch": 4,
    "imgsz": 32,
    "workers": 0,
    "device": "cpu",
    "plots": False,
    "accumulate": 1,
    "warmup_epochs": 1.5,
    "close_mosaic": 0,
}
READING = {  # changes after which the network sees other pictures or labels
    "batch": 3,
    "imgsz": 64,
    "seed": 1,
    "fraction": 0.5,
    "single_cls": True,
    "close_mosaic": 1,
    "preset": "off",
    "mosaic": 0.0,
    "mixup": 1.0,
    "scale": 0.0,
    "translate": 0.0,
    "degrees": 45.0,
    "shear": 10.0,
    "fliplr": 1.0,
    "flipud": 1.0,
    "hsv_h": 0.0,
    "hsv_s": 0.0,
    "hsv_v": 0.0,
}
SEEN_WITH_OUTLINES = {"copy_paste": 1.0}
LEARNING = {  # changes after which it learns other weights from the same
    "epochs": 3,
    "precision": "bf16",
    "freeze": 3,
    "optimizer": "adamw",
    "lr0": 0.02,
    "lrf": 0.5,
    "momentum": 0.8,
    "weight_decay": 0.05,
    "warmup_epochs": 0.5,
    "warmup_momentum": 0.5,
    "warmup_bias_lr": 0.05,
    "clip_norm": 0.1,
    "box": 3.0,
    "cls": 1.0,
    "l1": 0.1,
    "l1_units": "stride",
    "share_start": 0.5,
    "share_end": 0.5,
}
OF_TASKS = {  # settings that only some tasks have, with the rows that they learn from
    "segment": ("polygons", {"mask": 1.0, "mask_weight": "quality", "mask_cells": "centre", "assign_masks": False, "semantic": 0.0}),
    "pose": ("keypoints", {"pose": 1.0, "kobj": 5.0, "rle": 3.0, "rle_form": "single"}),
    "obb": ("rboxes", {"angle": 9.0}),
}
ELSEWHERE_OF_TASKS = {"proto_detach", "rle_floor", "teach_far", "l1_form"}  # held by tests of the losses and of the assigner
WINDOWS = {"nbs": 4, "accumulate": 2}  # other sums of gradients
AVERAGING = {"ema_decay": 0.5, "ema_ramp": 10.0}  # other averages of the same weights
ELSEWHERE = {  # held by tests of the run, of the command line and of the data
    *("model", "data", "device", "workers", "project", "name", "exist_ok", "resume", "patience", "cache", "max_det", "val_every"),
    *("plots", "report", "strict", "json", "capture"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(make_squares(tmp_path_factory.mktemp("settings"), train=4, val=3))


@pytest.fixture
def learn(data, tmp_path, monkeypatch):
    """`learn(**changes)` -> sums of the weights and of their averages after training without scores and files."""
    monkeypatch.setattr(callbacks, "save", lambda trainer, path: None)

    def run(**changes):
        config = TrainConfig(**{**BASE, "data": data, **changes})
        dataset, detector, card = open_all(config)
        loaded = TrainingData(dataset, make_task(card), **loading_of(config))
        module = DetectorModule(detector, make_task(card), config, card)
        fit(config, module, loaded, Journal(tmp_path, config.epochs, "e2e/box/ap"), lambda *_, **__: SimpleNamespace(paths={}), None)
        return tuple(sum(float(p.detach().double().sum()) for p in m.parameters()) for m in (module.detector, module.ema.model))

    return run


def test_every_training_setting_is_looked_at():
    of_tasks = {name for _, changes in OF_TASKS.values() for name in changes} | ELSEWHERE_OF_TASKS
    assert {*READING, *SEEN_WITH_OUTLINES, *LEARNING, *of_tasks, *WINDOWS, *AVERAGING, *ELSEWHERE} == {
        field.name for field in fields(TrainConfig)
    }
    assert "off" in PRESETS


def shown(data, **changes):
    """Sums of all that two epochs of the loader give to the network."""
    config = TrainConfig(**{**BASE, "data": data, **changes})
    dataset, _, card = open_all(config)
    loader = TrainingData(dataset, make_task(card), **loading_of(config)).train_dataloader()
    sums = []
    for epoch in range(config.epochs):
        loader.keys.set_epoch(epoch)
        for packed in loader:
            batch = apply(packed)
            sums.append(
                (batch.images.shape, batch.images.long().sum().item(), batch.targets.boxes.sum().item(), batch.targets.labels.sum().item())
            )
    return sums


def test_training_settings_change_what_is_seen(data):
    plain = shown(data, mosaic=0.5)
    assert shown(data, mosaic=0.5) == plain
    assert [name for name, value in READING.items() if shown(data, **{"mosaic": 0.5, name: value}) == plain] == []


def test_pasting_changes_what_is_seen_where_there_are_outlines(tmp_path):
    data = str(make_kind(tmp_path, "polygons", train=4, val=1))
    same = {"model": "segment-n", "mosaic": 0.0}
    assert shown(data, **same) == shown(data, **same)
    assert shown(data, **same) != shown(data, **same, **SEEN_WITH_OUTLINES)


@pytest.mark.parametrize("task", OF_TASKS)
def test_settings_of_a_task_change_what_it_learns_and_others_refuse_them(task, learn, data, tmp_path):
    kind, changes = OF_TASKS[task]
    own = {"model": f"{task}-n", "data": str(make_kind(tmp_path / "data", kind, train=4, val=1))}
    plain = learn(**own)
    assert [name for name, value in changes.items() if learn(**own, **{name: value})[0] == plain[0]] == []
    for name, value in changes.items():
        with pytest.raises(UsageError, match=f"{name}: expected a setting of the task detect"):
            open_all(TrainConfig(**{**BASE, "data": data, name: value}))


def test_training_settings_change_what_is_learned(learn):
    plain = learn()
    assert learn() == plain, "equal settings learn equal weights"
    same = []
    for name, value in LEARNING.items():
        same += [name] if learn(**{name: value})[0] == plain[0] else []
    assert same == []
    for name, value in AVERAGING.items():
        weights, average = learn(**{name: value})
        assert weights == plain[0]
        assert average != plain[1], name


def test_windows_change_what_is_learned(learn):
    two = {"batch": 2, "epochs": 1, "accumulate": None}
    plain = learn(**{**two, "accumulate": 1})
    assert learn(**{**two, "nbs": 2}) == plain
    assert learn(**{**two, "nbs": 4}) == learn(**{**two, "accumulate": 2}) != plain


def test_adamw_has_its_own(learn):
    plain = learn(optimizer="adamw")
    assert learn(optimizer="adamw", momentum=0.5) != plain
    assert learn(optimizer="adamw", warmup_bias_lr=0.05) != plain
    with pytest.raises(UsageError, match="warmup_momentum: expected optimizer=musgd"):
        TrainConfig(optimizer="adamw", warmup_momentum=0.5)


@pytest.fixture(scope="module")
def opened():
    """A detector with live features and many scores between 0 and 1."""
    card = Card("detect", "n", ("kind0", "kind1"), (3, 8), 64)
    detector = create(card, 0)
    for module in detector.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0  # the statistics of one batch
    with torch.no_grad():
        detector.train()(torch.rand(8, 3, 64, 64, generator=torch.Generator().manual_seed(0)))
        for name, parameter in detector.named_parameters():
            if ".classes." in name and name.endswith("2.bias"):
                parameter.zero_()
            if ".classes." in name and name.endswith("2.weight"):
                parameter.mul_(0.5)
    return detector.eval(), card


def seen(opened, data, **changes):
    results = list(predict(PredictConfig(**{"conf": 0.01, "device": "cpu", **changes}), data.replace("data.yaml", "images/val"), opened))
    assert len(results) == 3
    return [(tuple(r.boxes.cls.tolist()), tuple(r.boxes.conf.tolist())) for r in results]


@pytest.mark.parametrize(
    "change", [{"imgsz": 96}, {"conf": 0.6}, {"max_det": 1}, {"path": "nms"}, {"classes": (8,)}, {"precision": "bf16"}], ids=str
)
def test_prediction_settings_change_what_is_seen(change, opened, data):
    plain = seen(opened, data)
    assert all(len(labels) > 1 for labels, _ in plain), "there is something to see"
    assert len({label for labels, _ in plain for label in labels}) == 2
    assert seen(opened, data, **change) != plain
    assert all(score == 1.0 for _, scores in seen(opened, data, conf=1.0) for score in scores)
    assert {len(labels) for labels, _ in seen(opened, data, max_det=1)} <= {0, 1}
    assert {label for labels, _ in seen(opened, data, classes=(8,)) for label in labels} == {1}


def test_half_is_precision_16(opened, data):
    for setting in ({"half": True}, {"precision": "16"}, {"half": True, "precision": "16"}):
        with pytest.raises(UsageError, match="expected 32, bf16 or auto on a CPU, got 16"):
            seen(opened, data, **setting)
    with pytest.raises(UsageError, match="half: expected it alone"):
        PredictConfig(half=True, precision="bf16")


def test_settings_of_suppression(opened, data):
    plain = seen(opened, data, path="nms")
    assert all(len(labels) > 1 for labels, _ in plain)
    assert seen(opened, data, path="nms", iou=0.3) != plain
    assert seen(opened, data, path="nms", agnostic_nms=True) != plain
    for setting in ({"iou": 0.3}, {"agnostic_nms": True}):
        with pytest.raises(UsageError, match="expected path=nms"):
            PredictConfig(**setting)


def scored(opened, data, tmp_path, **changes):
    base = {"model": "x", "data": data, "device": "cpu", "workers": 0, "plots": False, "project": str(tmp_path)}
    detector, card = opened
    scores, folder = validate(ValConfig(**{**base, **changes}), (detector, Card(card.task, card.scale, card.names, (0, 1), card.imgsz)))
    state = [(len(found), found.scores.sum().item()) for path in scores.paths.values() for found in path.coco.state().values()]
    return state, {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "change", [{"imgsz": 96}, {"conf": 0.6}, {"max_det": 1}, {"iou": 0.3}, {"precision": "bf16"}, {"split": "train"}], ids=str
)
def test_validation_settings_change_what_is_counted(change, opened, data, tmp_path):
    plain, files = scored(opened, data, tmp_path)
    assert all(count for count, _ in plain)
    assert scored(opened, data, tmp_path, **change)[0] != plain
    assert "predictions.json" in files
    assert "confusion.png" not in files


def test_what_validation_writes(opened, data, tmp_path):
    always = {"args.yaml", "env.json", "scores.json", "per_class.csv"}
    assert scored(opened, data, tmp_path, save_json=False, report=False)[1] == always
    assert scored(opened, data, tmp_path, save_json=False)[1] == {*always, "report.html", "details.json", "examples"}
    assert "confusion.png" in scored(opened, data, tmp_path, plots=True)[1]
    assert scored(opened, data, tmp_path, single_cls=True)[0]


def test_every_augmentation_value_can_be_overridden():
    assert set(AUGMENT_FIELDS) == {field.name for field in fields(AugmentConfig)}

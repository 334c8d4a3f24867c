"""Every task from files to scores: mixed with empty pictures, perfect predictions, letterbox and back, weights on disk."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer

from pellucid import Model
from pellucid.config import TrainConfig
from pellucid.data.samples import NAMES
from pellucid.decode import decode, restore
from pellucid.evaluate.coco import CocoMetric
from pellucid.geometry import Letterbox
from pellucid.geometry.rle import Rle
from pellucid.tasks import TASKS
from pellucid.train.module import DetectorModule
from pellucid.train.run import TrainingData, loading_of, open_all, train
from pellucid.types import ImageMeta, Instances, Prediction
from pellucid.zoo import Card, create, load_weights, make_task, save_weights
from tests.train.conftest import make_kind, make_squares

ROWS = {"detect": "boxes", "segment": "polygons", "pose": "keypoints", "obb": "rboxes"}
SAMPLES = {"detect": "trees", "segment": "nuclei", "pose": "quokka", "obb": "nuclei-obb"}
POINTS = {"points": 4, "dims": 3}  # of the squares


@pytest.fixture(params=sorted(TASKS))
def name(request):
    return request.param


@pytest.fixture
def mixed(name, tmp_path):
    """Six training and four validation pictures; every second one has no object."""
    make = make_squares if ROWS[name] == "boxes" else lambda folder, **counts: make_kind(folder, ROWS[name], **counts)
    path = make(tmp_path / "data", train=6, val=4)
    for number, label in enumerate(sorted((tmp_path / "data" / "labels").rglob("*.txt"))):
        assert label.read_text()
        label.write_text("" if number % 2 else label.read_text())
    return path


def config_of(name, data, **more):
    return TrainConfig(model=f"{name}-n", data=str(data), **{"epochs": 1, "imgsz": 64, "batch": 3, "workers": 0, "device": "cpu", **more})


def test_every_task_is_here():
    assert set(ROWS) == set(SAMPLES) == set(TASKS)
    assert set(SAMPLES.values()) <= set(NAMES)


def test_pictures_with_and_without_objects_train_score_and_predict(name, mixed, tmp_path):
    result = train(config_of(name, mixed, epochs=2, project=str(tmp_path / "runs"), accumulate=2))
    assert not result.interrupted
    metric = make_task(Card(name, "n", ("a",), (0,))).metrics[0]
    assert {f"{metric}/ap", f"{metric}/ap50"} <= set(result.scores.paths["nms"].metrics)
    model = Model(result.run_dir / "weights" / "best.safetensors")
    pictures = sorted((mixed.parent / "images" / "val").iterdir())
    for path in ("e2e", "nms"):
        results = model.predict(pictures, conf=0.0, path=path, batch=3)
        assert len(results) == len(pictures) == 4
        assert all(len(result) for result in results)


def test_pictures_without_objects_alone(name, mixed, tmp_path):
    for label in (mixed.parent / "labels").rglob("*.txt"):
        label.write_text("")
    result = train(config_of(name, mixed, project=str(tmp_path / "runs"), plots=False))
    assert all(np.isnan(value) for value in result.scores.paths["e2e"].metrics.values())


def test_a_plain_trainer_checks_itself_first(name, mixed, tmp_path):
    config = config_of(name, mixed)
    dataset, detector, card = open_all(config)
    task = make_task(card)
    module = DetectorModule(detector, task, config, card)
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu", max_epochs=1, num_sanity_val_steps=2, use_distributed_sampler=False, default_root_dir=tmp_path, **settings
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # Lightning's advice on workers
        trainer.fit(module, datamodule=TrainingData(dataset, task, **loading_of(config)))
    assert f"e2e/{task.metrics[0]}/ap" in trainer.callback_metrics


def as_found(objects: Instances, height: int, width: int) -> Instances:
    """Ground truth as a prediction that is sure of it; outlines as their pixels."""
    shapes = dict(objects.shapes)
    if "polygons" in shapes:
        shapes["masks"] = Rle.of_masks(shapes.pop("polygons").rasterise(height, width))
    return Instances(objects.labels, shapes, torch.linspace(1, 0.9, len(objects)))


def test_perfect_predictions_score_one(name):
    dataset, _, card = open_all(config_of(name, SAMPLES[name]))
    index, task = dataset.splits["val"], make_task(card)
    metric, objects = CocoMetric(index, task.metrics), 0
    for row in range(len(index)):
        height, width = index.sizes[row].tolist()
        meta = ImageMeta(row, int(index.ids[row]), str(index.path(row)), height, width)
        found = as_found(index.instances(row), height, width)
        metric.update([Prediction(meta, found)])
        objects += len(found)
    assert objects > 20
    scores = metric.compute()
    for kind in task.metrics:
        assert scores[f"{kind}/ap50"] == pytest.approx(1)
        assert scores[f"{kind}/ap"] > 0.99


@pytest.mark.parametrize(("height", "width"), [(480, 640), (1571, 3775), (333, 100)])
def test_restore_inverts_the_letterbox(name, height, width):
    dataset, _, _ = open_all(config_of(name, SAMPLES[name]))
    index = dataset.splits["val"]
    rows = index.sizes[0]
    gain = min(height / int(rows[0]), width / int(rows[1])) * 0.98
    truth = index.instances(0).warp(torch.diag(torch.tensor([gain, gain, 1.0], dtype=torch.float64)))
    placed = Letterbox.fit(height, width, 320)
    back = restore(truth.warp(placed.matrix()), placed)
    assert len(back) == len(truth) > 0
    error = max((shape.data - truth.shapes[key].data).abs().max().item() for key, shape in back.shapes.items())
    assert error <= 0.5 / (320 / max(height, width))


def test_weights_come_back_with_their_task(name, tmp_path):
    arguments = POINTS if name == "pose" else {}
    card = Card(name, "n", ("a", "b"), (3, 7), 64, arguments)
    model = create(card, seed=1).eval()
    save_weights(tmp_path / "w.safetensors", model.state_dict(), card)
    loaded, again = load_weights(tmp_path / "w.safetensors")
    assert again == replace(card, names=("a", "b"), category_ids=(3, 7))
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = (decode(each(images), make_task(card), "e2e", conf=0.0) for each in (model, loaded))
    assert len(ours) == 2
    for a, b in zip(ours, theirs, strict=True):
        assert len(a) == len(b) > 0
        assert torch.equal(a.scores, b.scores)
        assert all(torch.equal(a.shapes[key].bounds(), b.shapes[key].bounds()) for key in a.shapes)

"""The demo, the benches and the recipes: their tables fit the tasks, their settings exist, and they judge what they are given."""

import importlib.util
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pellucid.cli import read_settings
from pellucid.config import TrainConfig, merged
from pellucid.data.samples import NAMES, sample_path
from pellucid.tasks import TASKS
from pellucid.zoo import shipped_names

ROOT = Path(__file__).parents[1]


def script(path):
    spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), ROOT / path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(importlib.import_module("sys").modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def demo():
    return script("demo/run.py")


@pytest.fixture(scope="module")
def overfit():
    return script("bench/overfit.py")


@pytest.fixture(scope="module")
def reference():
    return script("bench/reference.py")


def test_the_demo_has_a_row_for_every_task(demo):
    assert set(demo.JOBS) == set(TASKS)
    for task, job in demo.JOBS.items():
        assert job.data in NAMES
        assert job.start in shipped_names()
        assert any((sample_path(job.data).parent / job.pictures).iterdir())
        assert job.metric == f"{TASKS[task]().metrics[0]}/ap50"
        assert 0.3 <= job.least < 1
        merged(TrainConfig(), read_settings("train", demo.words(demo.COMMON | job.settings | demo.SHORT)))


class Fake:
    """Stands for the commands of the demo: writes what they would write and prints what they would print."""

    def __init__(self, job, out, score, found=1, task="segment"):
        self.job, self.out, self.score, self.found, self.task, self.said = job, out, score, found, task, []

    def __call__(self, verb, *words, codes=(0,)):
        self.said.append((verb, words))
        return getattr(self, verb.replace(" ", "_"))()

    def data_check(self):
        return "clean\n"

    def train(self):
        return json.dumps({"run_dir": str(self.out / self.task / "train")})

    def val(self):
        path = {self.job.metric.removesuffix("50"): 0.1, self.job.metric: self.score}
        return json.dumps({"e2e": path, "nms": path, "run_dir": "val"})

    def predict(self):
        folder = self.out / self.task / "pictures"
        folder.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in (sample_path(self.job.data).parent / self.job.pictures).iterdir()]
        for name in names:
            (folder / name).touch()
        return "\n".join(json.dumps({"objects": [0] * self.found}) for _ in names)

    def export(self):
        return json.dumps({"path": "best.onnx", "parity": {"largest": {"score": 1e-6}}})


def test_the_demo_checks_trains_scores_predicts_and_exports_in_that_order(demo, tmp_path, monkeypatch):
    job = demo.JOBS["segment"]
    fake = Fake(job, tmp_path, job.least)
    monkeypatch.setattr(demo, "pellucid", fake)
    lines = demo.demo("segment", tmp_path, short=True)
    assert [verb for verb, _ in fake.said] == ["data check", "train", "val", "predict", "export"]
    assert "task=segment" in fake.said[0][1]
    assert f"model={job.start}" in fake.said[1][1]
    assert "epochs=2" in fake.said[1][1]
    assert f"(2 pictures, 2 {job.objects})" in "\n".join(lines)
    assert "best.onnx (largest differences: score 1e-06)" in "\n".join(lines)


@pytest.mark.parametrize(("score", "found", "said"), [(0.1, 1, "at least"), (float("nan"), 1, "at least"), (0.9, 0, "found")])
def test_the_demo_fails_where_little_is_found(demo, tmp_path, monkeypatch, score, found, said):
    monkeypatch.setattr(demo, "pellucid", Fake(demo.JOBS["segment"], tmp_path, score, found))
    with pytest.raises(demo.StepError, match=said):
        demo.demo("segment", tmp_path, short=True)


def test_a_command_that_fails_ends_the_demo(demo):
    with pytest.raises(demo.StepError, match="code 0, got 3"):
        demo.pellucid("data check", "data=no-such-place")


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_recipes_hold_settings_of_train(path):
    config = merged(TrainConfig(), read_settings("train", ["--config", str(path)]))
    assert config.epochs > 1
    assert not config.model or config.model.split("-")[0] in TASKS


def test_the_weights_script_has_a_recipe_for_every_start_of_the_demo(demo):
    text = (ROOT / "recipes" / "weights.sh").read_text()
    names = re.search(r"names=\(([^$)]+)\)", text)[1].split()
    assert {f"{name}-n" for name in names} == {job.start for job in demo.JOBS.values()} - {"trees-detect-n"}
    assert all((ROOT / "recipes" / f"{name}.yaml").is_file() and f"{name.split('-')[0]}" in text for name in names)


def test_the_weights_script_gives_train_each_setting_once(tmp_path):
    """Its steps are told to a stand-in; what ARGS says of a setting of the script or of the recipe wins."""
    (tmp_path / "contest" / "segment").mkdir(parents=True)
    stand_in, log = tmp_path / "python", tmp_path / "log"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >>{log}\n')
    stand_in.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "BUILD": str(tmp_path), "PYTHON": str(stand_in), "ARGS": "epochs=7 cache=none batch=2 epochs=1"}
    subprocess.run(["bash", "recipes/weights.sh", "none", "none", "none", "nuclei-segment"], cwd=ROOT, env=env, check=True)
    train, ship, sheet = log.read_text().splitlines()
    assert (ship.split()[0], sheet.split()[0]) == ("recipes/ship.py", "bench/sheets.py")
    config = merged(TrainConfig(), read_settings("train", train.removeprefix("-m pellucid train ").split()))
    assert (config.epochs, config.batch, config.cache, config.imgsz) == (1, 2, "none", 448)
    assert config.data == str(tmp_path / "contest" / "segment")


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_weights_have_a_card_to_read(name):
    assert f"# {name}" in (ROOT / "src" / "pellucid" / "zoo" / f"{name}.md").read_text().splitlines()[0]


def test_overfit_has_a_goal_for_every_task(overfit):
    assert set(overfit.GOALS) == set(TASKS)
    for task, (data, metric, goal, seeds) in overfit.GOALS.items():
        assert data in NAMES
        assert 0.5 < goal < 1
        assert metric in ("recall", "mask_iou") or metric.split("/")[0] in TASKS[task]().metrics
        assert len(seeds.split(",")) == (5 if metric == "pose/ap" else 1)


def test_overfit_validates_on_what_it_trains_on(overfit):
    dataset = overfit.remembered("quokka", "detect", 3)
    assert len(dataset.splits["train"]) == len(dataset.splits["val"]) == 3
    assert dataset.splits["train"] is dataset.splits["val"]


def looking(overfit, monkeypatch, index, change):
    """What `look_again` says of predictions that are the objects themselves, changed."""
    results = [SimpleNamespace(instances=change(index.instances(row))) for row in range(len(index))]
    monkeypatch.setattr(overfit, "load_weights", lambda path: (None, None))
    monkeypatch.setattr(overfit, "predict", lambda *_, **__: iter(results))
    return overfit.look_again(Path(), index)


def test_overfit_counts_what_was_found(overfit, monkeypatch):
    index = overfit.remembered("trees", "detect", 2).splits["train"]
    count = len(index.labels)
    assert count > 10
    assert looking(overfit, monkeypatch, index, lambda objects: objects) == {"recall": 1, "precision": 1, "mask_iou": 1}
    assert looking(overfit, monkeypatch, index, lambda objects: objects[:0]) == {"recall": 0, "precision": 0, "mask_iou": 0}
    fewer = looking(overfit, monkeypatch, index, lambda objects: objects[1:])
    assert fewer["recall"] == pytest.approx((count - 2) / count)
    assert fewer["precision"] == 1
    wrong = looking(overfit, monkeypatch, index, lambda objects: replace(objects, labels=objects.labels + 1))
    assert wrong == {"recall": 0, "precision": 0, "mask_iou": 0}
    twice = looking(overfit, monkeypatch, index, lambda objects: type(objects).cat([objects, objects]))
    assert twice["recall"] == 1
    assert twice["precision"] == 0.5


def test_overfit_measures_outlines(overfit, monkeypatch):
    index = overfit.remembered("nuclei", "segment", 1).splits["train"]
    assert looking(overfit, monkeypatch, index, lambda objects: objects) == {"recall": 1, "precision": 1, "mask_iou": 1}

    def moved(objects):
        matrix = torch.eye(3, dtype=torch.float64)
        matrix[0, 2] = 3
        return replace(objects, shapes={**objects.shapes, "polygons": objects.shapes["polygons"].warp(matrix)})

    assert 0.5 < looking(overfit, monkeypatch, index, moved)["mask_iou"] < 0.9


def test_reference_rows_are_trainings_of_known_tasks(reference):
    for row in reference.SETS.values():
        task, _, scale = row.model.rpartition("-")
        assert scale == "n"
        assert next(iter(row.reference)) == f"{TASKS[task]().metrics[0]}/ap"


def test_reference_hands_settings_on_and_reports_both_paths(reference, monkeypatch, tmp_path):
    scores = {"mask/ap": 0.5, "mask/ap50": 0.7, "mask/ar100": 0.6, "speed": {}}
    said = {"scores": {"e2e": scores, "nms": scores, "protocol": "p"}, "best": {}, "images_per_s": 1.0, "wall_s": 2.0}
    calls = []
    monkeypatch.setattr(reference, "train", lambda *given, **settings: calls.append((given, settings)) or said)
    found = reference.main(tmp_path, {"sets": "nuclei", "seeds": "0,1", "jobs": "1", "alone": "false", "semantic": "0", "epochs": "5"})
    assert [run["seed"] for run in found["trainings"]] == [0, 1]
    assert found["trainings"][0]["e2e"] == {"mask/ap": 0.5, "mask/ap50": 0.7}
    assert calls[0][0][:2] == ("segment-n", tmp_path / "nuclei")
    assert calls[0][1] == {"seed": "0", "epochs": "5", "imgsz": "640", "batch": "16", "val_every": "20", "semantic": "0"}


def test_reference_reports_a_training_that_failed(reference, monkeypatch, tmp_path):
    monkeypatch.setattr(reference, "train", lambda *_, **__: {"error": "no data"})
    (run,) = reference.main(tmp_path, {"sets": "mouse", "seeds": "0", "jobs": "1", "alone": "false"})["trainings"]
    assert run["error"] == "no data"


def test_arms_are_trained_by_the_command_line_and_tabled(monkeypatch, capsys):
    arms = script("bench/arms.py")
    said = []

    def trained(words, **_):
        said.append(words[3:])
        merged(TrainConfig(), read_settings("train", words[4:]))
        score = 0.5 if "semantic=0" in words else 0.25
        scores = {path: {"mask/ap": score + float(words[4:].count("seed=1")) / 10} for path in ("e2e", "nms")}
        told = json.dumps({"scores": {**scores, "gap": 0.0}, "images_per_s": 10.0})
        return SimpleNamespace(returncode=int("angle=0" in words), stdout=told, stderr="error: no such gain")

    monkeypatch.setattr(arms.subprocess, "run", trained)
    code = arms.main(["arms=; semantic=0 mask=3; angle=0", "seeds=0,1", "model=segment-n", "data=nuclei", "epochs=1"])
    out, err = capsys.readouterr()
    assert code == 1
    assert len(said) == len({" ".join(words) for words in said}) == 6
    assert all(words[0] == "train" for words in said)
    rows = json.loads(out)["rows"]
    assert [(row["arm"], row["seed"], "failed" in row) for row in rows][:3] == [
        ("default", 0, False),
        ("semantic=0 mask=3", 0, False),
        ("angle=0", 0, True),
    ]
    assert "| default | 0.250, 0.350 | 0.250, 0.350 |" in err
    assert "| `semantic=0 mask=3` | 0.500, 0.600 |" in err
    assert "| `angle=0` | failed, failed |" in err

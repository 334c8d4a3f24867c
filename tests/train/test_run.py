"""Training end to end on the CPU: files, resume bit for bit, signals, backgrounds, refusals."""

import csv
import json
import math
import multiprocessing
import os
import shutil
import signal
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml

from pellucid.config import TrainConfig
from pellucid.data.module import DataModule
from pellucid.errors import PellucidError, PellucidWarning, UsageError
from pellucid.train import run
from pellucid.train.callbacks import Interrupt, NonFinite
from pellucid.train.journal import Journal
from pellucid.train.module import DetectorModule
from pellucid.train.preflight import check_room, summary
from pellucid.train.run import loading_of, open_all, resume_config, train
from pellucid.zoo import load_weights, make_task
from tests.train.conftest import make_squares

TIMES = ("images_per_s", "wait", "seconds")
HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}  # a shell may have its own for SIGINT


def config(data, project, **changes):
    """Five batches an epoch in windows of two: three updates, the last window short."""
    plain = {
        "epochs": 3,
        "batch": 2,
        "accumulate": 2,
        "imgsz": 64,
        "workers": 0,
        "device": "cpu",
        "plots": False,
        "warmup_epochs": 1,
        "close_mosaic": 1,
    }
    return TrainConfig(**{"model": "detect-n", "data": str(data), "project": str(project), **plain, **changes})


@pytest.fixture(scope="module")
def straight(squares, tmp_path_factory):
    """A run that was never stopped."""
    return train(config(squares, tmp_path_factory.mktemp("straight"), plots=True))


def stop_after(monkeypatch, steps):
    """Send SIGTERM to this process in the `steps`-th training step; 0: while the first epoch is scored."""
    real, flat_scores, seen = DetectorModule.training_step, run._flat, []

    def step(self, *args):
        seen.append(1)
        if len(seen) == steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, *args)

    def scored(scores):
        if not steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return flat_scores(scores)

    monkeypatch.setattr(DetectorModule, "training_step", step)
    monkeypatch.setattr(run, "_flat", scored)


def state_of(result):
    return torch.load(result.run_dir / "weights" / "last.ckpt", weights_only=True)


def flat(value, name=""):
    """{dotted name: leaf} of nested dicts and lists."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: leaf for part, inner in items for key, leaf in flat(inner, f"{name}.{part}").items()}
    return {name: value}


def figures_of(result):
    """The rows of a run, without times."""
    with (result.run_dir / "results.csv").open() as file:
        return [
            {key: value for key, value in row.items() if key not in ("images_per_s", "wait", "seconds")} for row in csv.DictReader(file)
        ]


def test_workers_serve_all_epochs_in_one_stream_and_end_with_the_run(squares, straight, tmp_path, monkeypatch):
    loaders, made = [], DataModule.train_dataloader
    monkeypatch.setattr(DataModule, "train_dataloader", lambda self: loaders.append(made(self)) or loaders[-1])
    before = multiprocessing.active_children()
    result = train(config(squares, tmp_path, workers=2))
    assert [loader.starts for loader in loaders] == [1]
    assert multiprocessing.active_children() == before
    assert figures_of(result) == figures_of(straight)
    assert len(figures_of(straight)) == 3


def test_leaves_every_file_and_a_score_of_the_released_weights(straight):
    folder = straight.run_dir
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    pictures = {"labels.png", "curves.png", "confusion.png", "pr_curve.png", "f1_curve.png", "predictions.jpg", "train_batch0.jpg"}
    tables = {"args.yaml", "env.json", "results.csv", "scores.json", "per_class.csv", "predictions.json"}
    assert files >= {f"weights/{name}" for name in ("best.ckpt", "last.ckpt", "best.safetensors")} | pictures | tables
    assert not [name for name in files if name.endswith(".part")]
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert all(float(row["train/box"]) > 0 and row["e2e/box/ap"] for row in rows)
    assert straight.scores is not None
    assert set(straight.scores.paths) == {"e2e", "nms"}
    assert json.loads((folder / "scores.json").read_text())["images"] == 4
    assert straight.images_per_s > 0
    assert yaml.safe_load((folder / "args.yaml").read_text())["imgsz"] == 64


def test_best_is_the_best_row_and_its_metric_is_written_down(straight):
    with (straight.run_dir / "results.csv").open() as file:
        values = [float(row[straight.metric]) for row in csv.DictReader(file)]
    assert straight.metric == "e2e/box/ap"
    assert straight.epoch == (values.index(max(values)) + 1 if max(values) > 0 else len(values))
    assert state_of(straight)["run"]["best_epoch"] == straight.epoch
    assert straight.value == pytest.approx(max(values), rel=1e-4)


@pytest.mark.parametrize("steps", [6, 5, 0], ids=["inside a window", "at an epoch's last batch", "after an epoch"])
def test_a_stopped_run_goes_on_bit_for_bit(steps, straight, squares, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        stop_after(patch, steps)
        stopped = train(config(squares, tmp_path))
    assert stopped.interrupted
    assert stopped.scores is None
    position = state_of(stopped)["run"]
    assert position["epoch"] * 5 + position["batch"] == {6: 7, 5: 5, 0: 5}[steps]
    assert (position["batch"] == 0) == (steps == 0)
    resumed = train(TrainConfig(resume=str(stopped.run_dir)))
    assert not resumed.interrupted
    assert resumed.run_dir == stopped.run_dir
    one, two = flat(state_of(straight)), flat(state_of(resumed))
    tensors = [name for name, leaf in one.items() if isinstance(leaf, torch.Tensor)]
    assert len(tensors) > 1000
    assert any(name.startswith(".optimizer_states") for name in tensors)
    assert any("ema" in name for name in tensors)
    assert one.keys() == two.keys()
    assert [name for name in tensors if not torch.equal(one[name], two[name])] == []
    assert one[".run.epoch"] == two[".run.epoch"] == 3
    assert resumed.value == straight.value


def test_signal_handlers_are_given_back(straight):
    assert {number: signal.getsignal(number) for number in HANDLERS} == HANDLERS


def test_a_second_signal_stops_at_once(tmp_path):
    interrupt = Interrupt(Journal(tmp_path, 1, "e2e/box/ap"), 1)
    interrupt._ask(signal.SIGINT, None)
    assert interrupt.asked
    with pytest.raises(KeyboardInterrupt):
        interrupt._ask(signal.SIGINT, None)


def test_steps_that_stay_non_finite_end_the_run(tmp_path):
    guard = NonFinite(Journal(tmp_path, 1, "e2e/box/ap"))
    guard.on_train_epoch_end(None, SimpleNamespace(skipped=torch.tensor(99.0), last_losses={}))
    with pytest.raises(PellucidError, match=r"got 100 non-finite steps by epoch 1 .*lower lr0"):
        guard.on_train_epoch_end(None, SimpleNamespace(skipped=torch.tensor(100.0), last_losses={"box": torch.tensor(math.nan)}))


def test_batches_that_are_done_are_counted_by_the_devices_of_now(squares, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 8)
        stopped = train(config(squares, tmp_path))
    position = state_of(stopped)["run"]
    assert (position["batch"], position["world"]) == (4, 1)
    given = TrainConfig(data=str(squares), epochs=3, resume=str(stopped.run_dir))
    dataset = open_all(config(squares, tmp_path))[0]
    for device, done in (("cpu", 4), ("cpu,cpu", 2), ("cpu,cpu,cpu", 1)):
        journal, data = Journal(stopped.run_dir, 3, "e2e/box/ap"), SimpleNamespace(dataset=dataset)
        run.restore(journal, replace(given, device=device), data)
        assert data.position == (1, done)
    journal.share(1)  # of three, one batch each
    assert journal.batch == 3


def test_resume_keeps_the_settings_and_refuses_others(straight):
    saved = resume_config({"resume": str(straight.run_dir), "workers": 1})
    assert (saved.epochs, saved.imgsz, saved.workers) == (3, 64, 1)
    with pytest.raises(UsageError, match="epochs: expected 3 as in the run to resume, got 100"):
        resume_config({"resume": str(straight.run_dir), "epochs": 100})
    with pytest.raises(UsageError, match="has done all 3"):
        train(TrainConfig(resume=str(straight.run_dir)))


def test_a_set_without_objects_trains(backgrounds, tmp_path):
    result = train(config(backgrounds, tmp_path, epochs=1, plots=True))
    assert result.epoch == 1
    assert result.to_dict()["best"]["value"] is None
    assert result.scores.notes
    assert "no ground truth" in result.scores.notes[0]
    assert (result.run_dir / "weights" / "best.safetensors").is_file()
    with (result.run_dir / "results.csv").open() as file:
        row = next(csv.DictReader(file))
    assert float(row["train/box"]) == 0
    assert float(row["train/cls"]) > 0
    assert row["e2e/box/ap"] == ""


def test_stops_early_without_a_better_score_and_stays_stopped(squares, tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.train.run._flat", lambda scores: {"e2e/box/ap": 0.5})
    result = train(config(squares, tmp_path, epochs=9, patience=2))
    assert result.epoch == 1
    assert state_of(result)["run"]["epoch"] == 3
    with pytest.raises(UsageError, match="has done 3 and stopped early"):
        train(TrainConfig(resume=str(result.run_dir)))


def spoil(folder, name, content):
    (folder / name).write_bytes(content)


def spoil_checkpoint(folder, part, value):
    path = folder / "weights" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    torch.save({**content, part: value}, path)


@pytest.mark.parametrize(
    ("break_it", "match"),
    [
        (lambda run: spoil(run, "args.yaml", b"{"), "args.yaml: expected the settings of a run"),
        (lambda run: spoil(run, "args.yaml", b"- 1"), "args.yaml: expected the settings of a run"),
        (lambda run: spoil(run, "args.yaml", b""), "args.yaml: expected the settings of a run"),
        (lambda run: spoil(run, "args.yaml", b"\xff\xfe"), "args.yaml: expected the settings of a run"),
        (lambda run: spoil(run, "results.csv", b"epoch,b\nc,d"), "results.csv: expected a table of numbers"),
        (lambda run: spoil(run, "results.csv", b"\xff"), "results.csv: expected a table of numbers"),
        (lambda run: spoil(run, "weights/last.ckpt", b"PK\3\4 cut"), "last.ckpt: expected a checkpoint of a training run"),
        (lambda run: spoil(run, "weights/last.ckpt", b""), "last.ckpt: expected a checkpoint of a training run"),
        (lambda run: spoil_checkpoint(run, "run", {}), "last.ckpt: expected a checkpoint of a training run"),
        (lambda run: spoil_checkpoint(run, "pellucid", 3), "last.ckpt: expected a checkpoint of a training run"),
    ],
)
def test_a_damaged_run_is_named_and_not_resumed(break_it, match, straight, tmp_path):
    folder = shutil.copytree(straight.run_dir, tmp_path / "run")
    break_it(folder)
    with pytest.raises(PellucidError, match=match):
        train(TrainConfig(resume=str(folder)))


def test_a_run_is_not_resumed_on_other_classes(straight, tmp_path):
    folder = shutil.copytree(straight.run_dir, tmp_path / "run")
    settings = yaml.safe_load((folder / "args.yaml").read_text())
    other = make_squares(tmp_path / "other", train=4, val=2, classes=3)
    (folder / "args.yaml").write_text(yaml.safe_dump({**settings, "data": str(other)}))
    with pytest.raises(UsageError, match=r"expected the classes of the run \(kind0, kind1\), got others in .*\(kind0, kind1, kind2\)"):
        train(TrainConfig(resume=str(folder)))


def test_a_device_that_cannot_record_is_refused_before_a_folder_is_made(squares, tmp_path):
    with pytest.raises(UsageError, match="capture: expected a CUDA device for capture=step, got cpu"):
        train(config(squares, tmp_path / "runs", capture="step", device="cpu"))
    assert list(tmp_path.iterdir()) == []


def test_gains_and_units_reach_the_task(squares, tmp_path):
    _, _, card = open_all(config(squares, tmp_path, box=3.0, l1=0.5, l1_units="stride"))
    plain = {term.name: term for term in make_task(replace(card, task_args={})).terms}
    terms = {term.name: term for term in make_task(card).terms}
    assert (terms["box"].gain, terms["l1"].gain) == (3.0, 0.5)
    assert terms["l1"].loss is not plain["l1"].loss


def test_weights_are_taken_where_they_fit(straight, squares, tmp_path, capsys):
    weights = str(straight.run_dir / "weights" / "best.safetensors")
    trained = load_weights(weights)[0].state_dict()
    _, same, _ = open_all(config(squares, tmp_path, model=weights))
    assert all(torch.equal(value, trained[name]) for name, value in same.state_dict().items())
    assert "start fresh" not in capsys.readouterr().err
    _, other, card = open_all(config(squares, tmp_path, model=weights, single_cls=True))
    kept = [name for name, value in other.state_dict().items() if value.shape == trained[name].shape and torch.equal(value, trained[name])]
    assert card.names == ("object",)
    assert 0 < len(trained) - len(kept) < 20
    assert "start fresh" in capsys.readouterr().err


def test_weights_depend_on_the_seed_alone(squares, tmp_path):
    state = [open_all(config(squares, tmp_path, seed=seed))[1].state_dict() for seed in (0, 0, 1)]
    assert all(torch.equal(value, state[1][name]) for name, value in state[0].items())
    assert any(not torch.equal(value, state[2][name]) for name, value in state[0].items())


def test_what_is_in_use_is_what_is_counted(squares, tmp_path):
    chosen = config(squares, tmp_path)
    dataset, _, card = open_all(chosen)
    told = [list(summary(DataModule(dataset, make_task(card), imgsz=64, fraction=share))) for share in (1.0, 0.3)]
    assert [lines[0].partition(" objects")[0] for lines in told] == ["train: 10 images, 15", "train: 3 of 10 images (fraction=0.3), 4"]
    assert told[0][1:] == told[1][1:]


@pytest.mark.parametrize(("preset", "own"), [("finetune-n", {}), ("finetune-n", {"copy_paste": 0.5})])
def test_a_preset_does_not_warn_of_what_nobody_asked_for(preset, own, squares, tmp_path):
    chosen = config(squares, tmp_path, preset=preset, **own)
    dataset, _, card = open_all(chosen)
    data = DataModule(dataset, make_task(card), **loading_of(chosen))
    with pytest.warns(PellucidWarning, match="nothing is pasted for copy_paste=0.5") if own else nullcontext():
        assert data.train_dataloader().dataset.config.copy_paste == 0
    assert data.loading.augment.copy_paste > 0


def test_small_shared_memory_is_named_with_its_remedy(squares, tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.train.preflight.free_space", lambda path: 64e6 if path == "/dev/shm" else 1e12)
    chosen = config(squares, tmp_path, batch=16, imgsz=640, workers=8)
    index = open_all(chosen)[0].splits["train"]
    with pytest.warns(PellucidWarning, match=r"/dev/shm: about 944 MB are needed, 64 MB are free; .*--shm-size"):
        check_room(chosen, 8, index, 2, tmp_path, 1000)
    check_room(chosen, 0, index, 2, tmp_path, 1000)


def test_while_nothing_is_found_the_latest_weights_are_kept(tmp_path):
    journal = Journal(tmp_path, 9, "e2e/box/ap")
    kept = [journal.end_epoch({"epoch": epoch, "e2e/box/ap": value}) for epoch, value in enumerate((0.0, 0.0, 0.2, 0.2, 0.1, 0.3), 1)]
    assert kept == [True, True, True, False, False, True]
    assert (journal.best_epoch, journal.best_value) == (6, 0.3)


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_the_best_epoch_is_that_of_the_kept_weights_while_nothing_is_found(value, squares, tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.train.run._flat", lambda scores: {"e2e/box/ap": value})
    result = train(config(squares, tmp_path, epochs=3, patience=2))
    kept = torch.load(result.run_dir / "weights" / "best.ckpt", weights_only=True)["run"]
    assert kept["epoch"] == kept["best_epoch"] == result.epoch == state_of(result)["run"]["best_epoch"] == 3
    assert result.value == value or (math.isnan(result.value) and math.isnan(value))

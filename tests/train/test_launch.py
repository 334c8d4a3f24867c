"""Training on two devices from files to scores: one folder, one score; both stop together, and neither waits for a dead one."""

import csv
import math
import os
import signal
import threading
import time

import pytest
import torch

from pellucid.config import TrainConfig
from pellucid.errors import PellucidError, UsageError
from pellucid.train import launch as launching
from pellucid.train.device import pick_devices
from pellucid.train.launch import launch
from pellucid.train.run import train
from tests.train.conftest import make_kind


def config(data, project, **changes):
    plain = {"model": "detect-n", "epochs": 2, "batch": 2, "nbs": 8, "imgsz": 64, "workers": 0, "device": "cpu,cpu", "warmup_epochs": 1}
    return TrainConfig(**{**plain, "data": str(data), "project": str(project), "plots": False, **changes})


def rows_of(folder):
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def data(tmp_path):
    return make_kind(tmp_path / "set", "keypoints", train=10, val=5)


def test_two_processes_leave_one_run_whose_score_is_that_of_its_file(data, tmp_path, capfd):
    """Pose, whose divisors must be known before the backward pass; windows of two steps, three batches a rank, five pictures to score."""
    chosen = config(data, tmp_path, model="pose-n", plots=True)
    assert chosen.accumulation == 2  # 8 = 2 pictures x 2 processes x 2 steps
    result = train(chosen)
    (folder,) = (tmp_path / "pose").iterdir()
    assert result.run_dir == folder
    assert not result.interrupted
    rows = rows_of(folder)
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[-1]["train/box"]) > 0
    assert len(list(folder.glob("train_batch*.jpg"))) == 3
    assert capfd.readouterr().err.count("epoch 2/2") == 1
    assert result.images_per_s > 0
    assert result.scores.images == 5
    assert result.value == pytest.approx(result.scores.paths["e2e"].metrics["pose/ap"], rel=1e-6)
    state = torch.load(folder / "weights" / "last.ckpt", weights_only=True)
    assert state["pellucid"]["steps"] == 4  # two windows an epoch, the second one short


def test_both_stop_together_and_go_on(squares, tmp_path):
    project = tmp_path / "runs"

    def stop_after_an_epoch():
        rows = project / "detect" / "train" / "results.csv"
        while not rows.is_file() and waiting.is_alive():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    waiting = threading.current_thread()
    threading.Thread(target=stop_after_an_epoch, daemon=True).start()
    stopped = train(config(squares, project, epochs=8, val_every=8))
    assert stopped.interrupted
    state = torch.load(stopped.run_dir / "weights" / "last.ckpt", weights_only=True)["run"]
    assert 0 < state["epoch"] < 8
    resumed = train(TrainConfig(resume=str(stopped.run_dir), device="cpu,cpu"))
    assert not resumed.interrupted
    assert [row["epoch"] for row in rows_of(resumed.run_dir)] == [str(number) for number in range(1, 9)]


def test_a_process_that_fails_says_so(tmp_path, capfd):
    with pytest.raises(PellucidError, match=r"expected 2 processes that train to the end, got exit codes \["):
        launch(tmp_path / "no run", 2)
    assert "no run/args.yaml" in capfd.readouterr().err


def test_ranks_that_wait_are_ended(tmp_path, monkeypatch):
    """One that fails at once beside one that would sleep for ever."""
    script = tmp_path / "rank.py"
    script.write_text("import os, sys, time\nsys.exit(3) if os.environ['LOCAL_RANK'] == '1' else time.sleep(600)\n")
    real = launching.subprocess.Popen
    monkeypatch.setattr(launching.subprocess, "Popen", lambda words, **rest: real([words[0], str(script)], **rest))
    with pytest.raises(PellucidError, match=rf"got exit codes \[-{signal.SIGKILL.value}, 3\]"):
        launch(tmp_path, 2)


def test_devices_are_named_with_commas(monkeypatch):
    assert pick_devices("cpu,cpu") == [torch.device("cpu")] * 2
    assert len(pick_devices("cpu")) == 1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_devices("0,1") == [torch.device("cuda", 0), torch.device("cuda", 1)]
    for text in ("0,0", "0,cpu"):
        with pytest.raises(UsageError, match="expected different GPUs"):
            pick_devices(text)
    with pytest.raises(UsageError, match="but torch sees 2 GPUs"):
        pick_devices("0,2")


def test_accumulation_counts_the_devices():
    assert TrainConfig(batch=8, nbs=64).accumulation == 8
    assert TrainConfig(batch=8, nbs=64, device="0,1").accumulation == 4
    assert TrainConfig(batch=8, nbs=64, device="0,1", accumulate=3).accumulation == 3
    assert math.isclose(TrainConfig(batch=64, nbs=64, device="0,1").accumulation, 1)

"""Run folders and their files; the journal; the device and precision that are picked."""

import contextlib
import math

import pytest
import torch

from pellucid.config import TrainConfig
from pellucid.errors import MissingFileError, UsageError
from pellucid.train.device import pick_device, pick_precision
from pellucid.train.folder import find_run, new_folder, read_args, read_rows, whole_file, write_args, write_rows
from pellucid.train.journal import Journal
from pellucid.train.progress import duration, words_of


def test_folders_are_numbered_unless_told_otherwise(tmp_path):
    names = [new_folder(str(tmp_path), "detect", "train").name for _ in range(3)]
    assert names == ["train", "train-2", "train-3"]
    assert new_folder(str(tmp_path), "detect", "train", exist_ok=True).name == "train"


@pytest.mark.parametrize("name", ["..", "a/b", ".", "a\\b"])
def test_a_name_is_a_plain_name(name, tmp_path):
    with pytest.raises(UsageError, match="expected a plain folder name"):
        new_folder(str(tmp_path), "detect", name)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="expected a folder that can be written"):
        new_folder(str(tmp_path / "file"), "detect", "train")


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    with whole_file(path) as part:
        part.write_text("old")
    with contextlib.suppress(RuntimeError), whole_file(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_columns_keep_their_places_when_a_row_had_gaps(tmp_path):
    rows = [{"epoch": 1.0, "ap": 0.1, "seconds": 3.0}, {"epoch": 2.0, "ap": 0.2, "ap_l": 0.3, "seconds": 4.0}, {"epoch": 3.0, "lr": 0.1}]
    write_rows(tmp_path / "a.csv", rows)
    assert (tmp_path / "a.csv").read_text().splitlines()[0] == "epoch,lr,ap,ap_l,seconds"
    write_rows(tmp_path / "b.csv", [*read_rows(tmp_path / "a.csv"), {"epoch": 4.0, "lr": 0.1, "ap": 0.2, "ap_l": 0.3, "seconds": 4.0}])
    assert (tmp_path / "b.csv").read_text().splitlines()[:4] == (tmp_path / "a.csv").read_text().splitlines()


def test_settings_and_rows_come_back(tmp_path):
    config = TrainConfig(model="detect-n", lr0=1e-3, workers=2, name="日本")
    write_args(tmp_path, config)
    assert TrainConfig(**read_args(tmp_path)) == config
    write_rows(tmp_path / "a.csv", [{"epoch": 1.0, "x": math.nan}, {"epoch": 2.0, "y": 0.5}])
    assert read_rows(tmp_path / "a.csv") == [{"epoch": 1.0}, {"epoch": 2.0, "y": 0.5}]
    assert read_rows(tmp_path / "none.csv") == []


def test_a_run_is_found_by_folder_or_checkpoint(tmp_path):
    with pytest.raises(MissingFileError, match=r"last.ckpt: expected a file of the run to resume"):
        find_run(str(tmp_path))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "last.ckpt").touch()
    (tmp_path / "args.yaml").touch()
    assert find_run(str(tmp_path)) == find_run(str(tmp_path / "weights" / "last.ckpt")) == (tmp_path, tmp_path / "weights" / "last.ckpt")


def test_the_journal_knows_the_best_epoch_and_forgets_what_is_done_again(tmp_path):
    journal = Journal(tmp_path, 9, "e2e/box/ap")
    better = [journal.end_epoch({"epoch": n, "e2e/box/ap": value}) for n, value in enumerate([math.nan, 0.2, 0.1, 0.3, 0.3], 1)]
    assert better == [True, True, False, True, False]
    assert (journal.best_epoch, journal.best_value, journal.epoch) == (4, 0.3, 5)
    again = Journal(tmp_path, 9, "e2e/box/ap")
    again.restore({**journal.state(), "epoch": 3, "batch": 2})
    assert [row["epoch"] for row in again.rows] == [1, 2, 3]
    assert (again.epoch, again.batch, again.best_epoch) == (3, 2, 4)


def test_the_first_epoch_without_a_score_is_not_the_best(tmp_path):
    journal = Journal(tmp_path, 2, "e2e/box/ap")
    assert not journal.end_epoch({"epoch": 1})
    assert journal.end_epoch({"epoch": 2, "e2e/box/ap": 0.0})


def test_patience_counts_from_the_last_better_score_and_outlives_a_checkpoint(tmp_path):
    def ended(*values):
        journal, stopped = Journal(tmp_path, 9, "e2e/box/ap"), []
        for epoch, value in enumerate(values, 1):
            journal.end_epoch({"epoch": epoch, "e2e/box/ap": value})
            again = Journal(tmp_path, 9, "e2e/box/ap")
            again.restore(journal.state())
            assert (again.best_epoch, again.out_of_patience(2)) == (journal.best_epoch, journal.out_of_patience(2))
            stopped.append(journal.out_of_patience(2))
        return journal.best_epoch, stopped

    assert ended(0.0, 0.0, 0.0) == (3, [False, False, True])
    assert ended(0.0, 0.0, 0.2, 0.1, 0.2) == (3, [False, False, False, False, True])
    assert ended(math.nan, math.nan, math.nan, 0.0, math.nan, 0.0) == (6, [False] * 5 + [True])
    old = Journal(tmp_path, 9, "e2e/box/ap")
    old.restore({"epoch": 3, "batch": 0, "metric": "e2e/box/ap", "best_value": 0.5, "best_epoch": 1})  # as it was written before
    assert old.out_of_patience(2)
    assert not old.out_of_patience(3)


def test_devices_and_precisions():
    cpu = torch.device("cpu")
    assert pick_device("cpu") == cpu
    assert [pick_precision(text, cpu) for text in ("auto", "32", "bf16")] == ["32", "32", "bf16"]
    with pytest.raises(UsageError, match="which needs a GPU"):
        pick_precision("16", cpu)
    for text in ("gpu", "99", "0,1", "-1"):
        with pytest.raises(UsageError, match="device: expected"):
            pick_device(text)


def test_words():
    assert (duration(59.6), duration(3661), duration(75)) == ("1:00", "1:01:01", "1:15")
    assert words_of({"box": torch.tensor(1.23456), "ap": 0.5}) == "box 1.235  ap 0.5000"

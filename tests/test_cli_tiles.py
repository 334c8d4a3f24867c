"""The verb that cuts large pictures."""

import json

import pytest

from pellucid.cli import main
from pellucid.data import open_dataset

from .data.make import yolo
from .data.test_tiles import dota_set


def test_data_tiles(tmp_path, capsys):
    source = dota_set(tmp_path / "whole")
    assert main(["data", "tiles", f"data={source}", f"out={tmp_path / 'tiles'}", "tile=80", "overlap=20", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["format"] == "dota"
    assert report["images"] == {"train": 2, "val": 2}
    data = open_dataset(report["out"], ("boxes", "rboxes"))
    assert {split: len(index) for split, index in data.splits.items()} == report["tiles"] == {"train": 12, "val": 12}
    assert main(["data", "tiles", f"data={source}", f"out={tmp_path / 'more'}", "tile=80", "overlap=20"]) == 0
    assert "train: 2 pictures in 12 tiles" in capsys.readouterr().out


def test_what_cannot_be_cut_is_refused_in_a_sentence(tmp_path, capsys):
    source = dota_set(tmp_path / "whole")
    for words, sentence in (
        ([f"data={source}"], "out: expected a value"),
        ([f"data={source}", f"out={source}"], "out: expected a new or empty folder"),
        (
            [f"data={source}", f"out={tmp_path / 'x'}", "tile=100", "overlap=200"],
            "overlap: expected 0 or more pixels and less than tile=100",
        ),
    ):
        assert main(["data", "tiles", *words]) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("row", ["0 .1 .1 .5 .1 .5 .5 .3 .6 .1 .5", "0 .5 .5 .2 .2"], ids=["outline", "box"])
def test_rows_of_another_task_are_refused_and_become_tiles_by_way_of_convert(row, tmp_path, capsys):
    quad = "0 .1 .1 .5 .1 .5 .5 .1 .5\n"  # an outline of four points, too
    source = yolo(tmp_path / "old", {"train": {"a": quad * 2 + row + "\n"}, "val": {"v": quad}})
    assert main(["data", "tiles", f"data={source}", f"out={tmp_path / 'tiles'}", "tile=32"]) == 3
    err = capsys.readouterr().err
    assert "expected rows of four corners, got train: 1 of 3 row(s)" in err
    assert "a.txt:3" in err
    assert "`pellucid data convert to=dota`" in err
    assert not (tmp_path / "tiles").exists()
    if len(row.split()) > 5:
        assert main(["data", "convert", f"data={source}", f"out={tmp_path / 'new'}", "to=dota", "task=segment"]) == 0
        assert main(["data", "tiles", f"data={tmp_path / 'new'}", f"out={tmp_path / 'tiles'}", "tile=64"]) == 0
        assert "3 objects" in capsys.readouterr().out

"""The verb that cuts large pictures."""

import json

from pellucid.cli import main
from pellucid.data import open_dataset

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

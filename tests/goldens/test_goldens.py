"""Frozen figures are found again, and cannot be edited by hand."""

import json
import shutil

import pytest
import torch

from pellucid.tasks import TASKS

from .conftest import ROOT

NAMES = ["counts", "assignment", "schedule", "newton_schulz", *(f"loss-{name}" for name in TASKS)]
HAND = {"many": [(0, 0, 1.0), (1, 1, 0.75**6), (2, 1, 1.0)], "one": [(0, 0, 1.0), (2, 1, 1.0)]}  # anchor, object, q


@pytest.fixture
def copy(make, tmp_path):
    for path in (*make.HERE.glob("*.json"), make.MANIFEST):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_every_golden_is_frozen(make):
    assert set(make.GOLDENS) == set(NAMES) == {path.stem for path in make.HERE.glob("*.json")}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_frozen_is_found_again(make, name):
    frozen = make.load(name)
    assert make.differences(make.GOLDENS[name].make(), frozen) == []
    assert len(list(make.leaves(frozen["values"]))) >= 8


def test_no_random_number_enters_a_fixed_batch(make):
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(make.GOLDENS["loss-pose"].make())
    assert found[0] == found[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_what_it_is(make, name):
    frozen, golden = make.load(name), make.GOLDENS[name]
    assert frozen["name"] == name
    assert frozen["command"].startswith(f"make reseal NAME={name} ")
    assert (frozen["tolerance"], frozen["floor"], frozen["reason"]) == (golden.tolerance, golden.floor, golden.reason)
    assert len(frozen["reason"].split()) > 5
    assert len(frozen["resealed"].split()) >= 3
    assert make.below_floor(frozen["values"], golden.tolerance, golden.floor) == []


def test_the_assignment_is_the_one_by_hand(make):
    found = make.load("assignment")["values"]
    for branch, rows in HAND.items():
        assert [(row["anchor"], row["object"]) for row in found[branch]] == [row[:2] for row in rows]
        assert [row["q"] for row in found[branch]] == pytest.approx([row[2] for row in rows], abs=1e-8)


def test_singular_values_are_those_of_the_scalar_iteration(make):
    expected = []
    for x in (0.6, 0.8):
        for _ in range(5):
            x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
        expected.append(abs(x))
    assert make.load("newton_schulz")["values"]["diag(3, 4)"] == pytest.approx(sorted(expected, reverse=True), rel=1e-6)


def test_seals_are_whole(make):
    assert make.broken_seals() == []


def test_a_silent_edit_is_refused(make, copy):
    path = copy / "counts.json"
    path.write_text(path.read_text().replace("2572280", "2572281"))
    assert make.broken_seals(copy) == ["counts.json"]
    (copy / "own.json").write_text("{}")
    (copy / "schedule.json").unlink()
    assert make.broken_seals(copy) == ["counts.json", "own.json", "schedule.json"]


def test_a_reseal_asks_for_a_reason_and_closes_the_seal(make, copy):
    (copy / "schedule.json").write_text("{}")
    with pytest.raises(SystemExit, match="expected a reason in a few words, got 'because'"):
        make.reseal("schedule", "because", copy)
    assert make.broken_seals(copy) == ["schedule.json"]
    make.reseal("schedule", "the file was emptied by a test", copy)
    assert make.broken_seals(copy) == []
    assert json.loads((copy / "schedule.json").read_text())["resealed"] == "the file was emptied by a test"


def test_a_reseal_never_crosses_the_floor(make, copy, monkeypatch):
    low = make.Golden(lambda: {"rate": [0.5, 1e-13]}, 1e-12, 0, "a rate that less the tolerance is negative")
    monkeypatch.setitem(make.GOLDENS, "schedule", low)
    with pytest.raises(SystemExit, match=r"schedule crosses its floor: rate\.1: expected at least the floor 0"):
        make.reseal("schedule", "a lower rate is fine", copy)
    assert make.broken_seals(copy) == []


def test_differences_are_named(make):
    golden = {"values": {"a": 1.0, "b": [2.0, 3.0], "gone": 1.0}, "tolerance": 0.1, "floor": 0.5}
    assert make.differences({"a": 1.05, "b": [2.0, 3.0], "gone": 1.0}, golden) == []
    said = make.differences({"a": 0.4, "b": [2.0, float("nan")], "new": 1.0}, golden)
    assert [text.split(":")[0] for text in said] == ["a", "b.1", "gone", "new", "a", "b.1"]


def test_the_command_compares_prints_and_refuses(make, monkeypatch, capsys):
    few = {"assignment": make.GOLDENS["assignment"]}
    monkeypatch.setattr(make, "GOLDENS", few)
    assert make.compare() == 0
    assert make.main(["assignment"]) == 0
    assert '"anchor": 2' in capsys.readouterr().out
    few["assignment"] = make.Golden(lambda: {}, 0, 0, "")
    assert make.compare() == 1
    assert "assignment: many.0.anchor: expected a value, got none" in capsys.readouterr().err


def test_make_can_reseal():
    text = (ROOT / "Makefile").read_text()
    assert "reseal:" in text
    assert 'goldens/make.py $(NAME) --reseal "$(REASON)"' in text

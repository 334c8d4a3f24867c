"""Weights that are broken, foreign or hostile are refused in one sentence that names the file."""

import json
import os
import pickle
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import save_file

from pellucid.errors import CheckpointError, PellucidError
from pellucid.zoo import Card, create, load_weights, open_model, save_weights

CARD = Card("detect", "n", ("cat", "dog"), (0, 1), 64)


class Hostile:
    def __reduce__(self):
        return os.system, ("touch ran-code",)


@pytest.fixture(scope="module")
def state():
    return dict(create(CARD, 0).state_dict())


CARDS = [
    ({"task": "fold"}, "the task must be one of detect"),
    ({"scale": "q"}, "scale 'q'"),
    ({"names": ["a", "b", "c"]}, "3 names, 2 ids"),
    ({"names": ["a", "b", "c"], "category_ids": [0, 1, 2]}, "with 3 classes"),
    ({"names": None}, "expected a card"),
    ({"imgsz": 100}, "imgsz 100"),
    ({"imgsz": "a"}, "imgsz 'a'"),
    ({"task_args": {"bad": 1}}, "expected a card"),
    ({"task_args": 3}, "expected a card"),
    ({"unheard": 1}, "expected a card"),
    ({"scale": "m"}, "detect-m"),
]


def refused(path, match, kind=CheckpointError):
    with pytest.raises(kind, match=match) as caught:
        load_weights(path)
    message = str(caught.value)
    assert path.name in message
    assert "\\n" not in message
    assert "; " in message


@pytest.mark.parametrize(("change", "match"), CARDS, ids=[str(change) for change, _ in CARDS])
def test_a_card_that_fits_no_model(change, match, state, tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, state, CARD)
    assert load_weights(path)[1].names == CARD.names
    save_file(state, path, {"pellucid": json.dumps({**asdict(CARD), **change})})
    refused(path, match)


@pytest.mark.parametrize("text", ["{", "[]", "3", "{}"])
def test_a_card_that_is_none(text, state, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(state, path, {"pellucid": text})
    refused(path, "expected a card")


FOREIGN = [
    [1],
    3,
    torch.ones(2),
    {"a": 1},
    {"pellucid": 3},
    {"pellucid": {"card": "{}"}},
    {"pellucid": {"card": "{", "ema": {"model": {}}}},
]


@pytest.mark.parametrize("content", FOREIGN, ids=str)
def test_checkpoints_of_others(content, tmp_path):
    torch.save(content, tmp_path / "w.ckpt")
    refused(tmp_path / "w.ckpt", "written by pellucid|expected a card")


@pytest.mark.parametrize(
    "content", [b"", b"no weights here" * 99, b"PK\\3\\4 cut off", pickle.dumps(Hostile())], ids=["empty", "text", "zip", "code"]
)
@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_bytes_that_are_no_weights(content, suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    refused(path, "broken or asks to run code|expected a safetensors file")
    assert not (tmp_path / "ran-code").exists()


def test_what_a_pickle_asks_for_is_named_and_no_way_around_is_recommended(tmp_path):
    torch.save({"pellucid": Hostile()}, tmp_path / "w.ckpt")
    with pytest.raises(CheckpointError, match=r"it names (posix|nt)\.system") as caught:
        load_weights(tmp_path / "w.ckpt")
    assert "weights_only" not in str(caught.value)


def test_a_name_does_not_leave_the_shipped_weights(state, tmp_path):
    save_weights(tmp_path / "w.safetensors", state, CARD)
    with pytest.raises(PellucidError, match="expected a weights file"):
        open_model(tmp_path / "w")
    with pytest.raises(PellucidError, match="expected a weights file"):
        open_model("n" * 4000)

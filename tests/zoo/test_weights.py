"""Weights on disk: what is written comes back, and what is not ours is refused in a sentence."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pellucid.errors import CheckpointError, MissingFileError, UsageError
from pellucid.zoo import Card, create, load_weights, open_model, save_weights, shipped_names

CARD = Card("detect", "n", ("ant", "蜂"), (3, 17), 320, {"l1_units": "stride"}, {"epochs": 5})


@pytest.mark.parametrize("half", [False, True])
def test_what_is_written_comes_back(half, tmp_path):
    model = create(CARD, 0).to(memory_format=torch.channels_last)
    save_weights(tmp_path / "a.safetensors", model.state_dict(), CARD, half)
    again, card = load_weights(tmp_path / "a.safetensors")
    assert card == CARD
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    for (name, a), (_, b) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
        assert b.dtype == a.dtype, name
        torch.testing.assert_close(a, b, rtol=1e-3 if half else 0, atol=1e-4 if half else 0)


def test_equal_seeds_give_equal_weights_and_leave_the_global_stream():
    before = torch.get_rng_state()
    a, b, c = create(CARD, 1), create(CARD, 1), create(CARD, 2)
    assert torch.equal(torch.get_rng_state(), before)
    first = "backbone.layers.0.conv.weight"
    assert torch.equal(a.state_dict()[first], b.state_dict()[first])
    assert not torch.equal(a.state_dict()[first], c.state_dict()[first])


def test_open_by_name():
    model, card = open_model("detect-n", ("a", "b"), (5, 6))
    assert card.nc == 2
    assert card.category_ids == (5, 6)
    assert model.one.classes[0][-1].out_channels == 2
    with pytest.raises(UsageError, match=r"weights file .* or a name; got .detekt-n.; did you mean detect-n\?"):
        open_model("detekt-n")
    with pytest.raises(UsageError, match=r"got .yolo.pt.; names are detect-n"):
        open_model("yolo.pt")


def test_a_run_folder_and_another_suffix_point_to_the_weights(tmp_path):
    weights = tmp_path / "run" / "weights" / "best.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    for given in (tmp_path / "run", weights.with_suffix(".pt")):
        with pytest.raises(UsageError, match=f"did you mean {weights}"):
            open_model(given)


class Evil:
    def __reduce__(self):
        return Path.write_text, (Path("owned"), "x")


def test_files_that_are_not_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"a": torch.zeros(1)}, tmp_path / "bare.safetensors")
    (tmp_path / "evil.ckpt").write_bytes(pickle.dumps({"pellucid": Evil()}))
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    save_weights(tmp_path / "short.safetensors", {"backbone.layers.0.conv.weight": torch.zeros(16, 3, 3, 3)}, CARD)
    for name, answer in (
        ("text.safetensors", "expected a safetensors file"),
        ("bare.safetensors", "no card inside"),
        ("evil.ckpt", "asks to run code"),
        ("other.ckpt", "no card inside"),
        ("short.safetensors", "expected the weights of detect-n with 2 classes"),
    ):
        with pytest.raises(CheckpointError, match=answer):
            load_weights(tmp_path / name)
    assert not (tmp_path / "owned").exists()
    with pytest.raises(MissingFileError, match="check the path"):
        load_weights(tmp_path / "none.ckpt")


def test_everything_shipped_opens():
    assert shipped_names()
    for name in shipped_names():
        model, card = open_model(name)
        assert len(card.names) == model.one.classes[0][-1].out_channels
        assert all(torch.isfinite(value).all() for value in model.state_dict().values())

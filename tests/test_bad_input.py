"""What users get wrong, through the command line: an exit code and one sentence that says what was expected, what came, what to do."""

import io
import json
import os
import pickle
import sys
from pathlib import Path

import pytest
import torch

from pellucid.cli import main, sentence_of
from pellucid.zoo import Card, create, save_weights
from tests.data.make import picture, text, yolo
from tests.train.conftest import make_squares

GOOD = "0 .5 .5 .4 .4\n"


class Hostile:
    def __reduce__(self):
        return os.system, ("touch ran-code",)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a good data set, weights for it, and everything that can be wrong with either."""
    root = tmp_path_factory.mktemp("world")
    make_squares(root / "good", train=4, val=2)
    card = Card("detect", "n", ("kind0", "kind1"), (0, 1), 64)
    save_weights(root / "w.safetensors", create(card, 0).state_dict(), card)
    save_weights(root / "task.safetensors", create(card, 0).state_dict(), Card("fold", "n", ("kind0", "kind1"), (0, 1), 64))
    (root / "garbage.safetensors").write_bytes(b"no weights here " * 99)
    (root / "hostile.ckpt").write_bytes(pickle.dumps(Hostile()))
    torch.save({"pellucid": Hostile()}, root / "hostile2.ckpt")
    make_squares(root / "three", train=2, val=2, classes=3)
    text(root / "file", "a regular file")
    (root / "void").mkdir()
    text(root / "broken.jpg", b"\xff\xd8\xff\xe0 nothing more")
    for split in ("train", "val"):
        (root / "empty" / "images" / split).mkdir(parents=True)
    text(root / "empty" / "data.yaml", "train: images/train\nval: images/val\nnames: [cat]\n")
    yolo(root / "row", {"train": {"a": GOOD, "b": GOOD + "0 .5 .5 .4\n"}, "val": {"a": GOOD}})
    yolo(root / "class", {"train": {"a": GOOD, "b": "7 .5 .5 .4 .4\n"}, "val": {"a": GOOD}})
    cut = yolo(root / "cut", {"train": {"a": GOOD, "b": GOOD}, "val": {"a": GOOD}}).parent / "images" / "train" / "b.jpg"
    cut.write_bytes(cut.read_bytes()[:400])
    yolo(root / "path", {"train": {"a": GOOD}, "val": {"a": GOOD}}, yaml="path: [a, b]\nnames: [cat, dog]\n")
    return root


TRAIN = "train model=detect-n data=good/data.yaml epochs=1 batch=4 imgsz=64 workers=0 device=cpu plots=false"
VAL = "val model=w.safetensors data=good/data.yaml workers=0 device=cpu"
PREDICT = "predict model=w.safetensors source=good/images/val device=cpu"
LONG = "a" * 4000
CASES = [
    ("missing folder", f"{TRAIN} data=no/where", 3, "no/where: expected a data.yaml"),
    ("missing home", f"{TRAIN} data=~nobody-here/x", 3, "there is no such file or folder"),
    ("empty split", f"{TRAIN} data=empty/data.yaml", 3, "the split 'train' is empty"),
    ("corrupt JPEG", f"{TRAIN} data=cut strict=true", 3, "images/train/b.jpg: the picture is broken"),
    ("bad row", f"{TRAIN} data=row strict=true", 3, "labels/train/b.txt:2: 4 fields"),
    ("class past names", f"{TRAIN} data=class", 3, "labels/train/b.txt:1: class 7, but the classes are 0 to 1"),
    ("path of many", f"{TRAIN} data=path", 3, "expected `path` as one folder, got ['a', 'b']"),
    ("path too long", f"{TRAIN} data={LONG}", 1, "File name too long"),
    ("unknown key", f"{TRAIN} epoch=3", 2, "unknown setting 'epoch': did you mean epochs?"),
    ("key of another program", f"{TRAIN} lr=0.1", 2, "unknown setting 'lr': did you mean lr0?"),
    ("wrong task", f"{VAL} model=task.safetensors", (2, 3), "fold"),
    ("imgsz", f"{TRAIN} imgsz=100", 2, "imgsz: expected a multiple of 32 up to 16384, got 100; take 96"),
    (
        "one picture at the smallest canvas",
        f"{TRAIN} imgsz=32 batch=3",
        2,
        "got one in the last batch of 4 pictures at batch=3; take imgsz=64",
    ),
    ("no GPU", f"{TRAIN} device=0", 2, "expected the number of a GPU, got 0, but torch sees no GPUs"),
    ("output below a file", f"{TRAIN} project=file/x", 2, "expected a folder that can be written, got Not a directory"),
    ("output of val", f"{VAL} project=file", 2, "expected a folder that can be written"),
    ("output of predict", f"{PREDICT} project=file", 2, "expected a folder that can be written"),
    ("zero byte in the name", f"{TRAIN} name=a\0b", 2, "expected a folder that can be written"),
    ("name not UTF-8", f"{TRAIN} name=a\udce9", 2, "expected a folder that can be written"),
    ("name with a folder", f"{TRAIN} name=a/b", 2, "expected a plain folder name, got 'a/b'"),
    ("name that climbs", f"{TRAIN} name=..", 2, "expected a plain folder name, got '..'"),
    ("garbage weights", f"{VAL} model=garbage.safetensors", 3, "garbage.safetensors, got something else"),
    ("resume of no run", f"{TRAIN} resume=good", 3, "good/weights/last.ckpt: expected a file of the run to resume, got nothing"),
    ("resume of weights", "train resume=w.safetensors", 3, "expected a file of the run to resume"),
    ("other classes", f"{VAL} data=three/data.yaml", 2, "expected data with the model's 2 classes (kind0, kind1), got 3"),
    ("split that is not there", f"{VAL} split=test", 3, "expected the split 'test', found train, val"),
    ("nothing to look at", f"{PREDICT} source=void", 3, "void: expected pictures"),
    ("corrupt picture", f"{PREDICT} source=broken.jpg", 3, "broken.jpg: the picture is broken"),
    ("URL of another kind", f"{PREDICT} source=ftp://x.org/a.jpg", 2, "expected an http:// or https:// URL, got 'ftp://x.org/a.jpg'"),
    ("batch", f"{TRAIN} batch=0", 2, "batch: expected a finite number of at least 1, got 0"),
    ("epochs", f"{TRAIN} epochs=0", 2, "epochs: expected a finite number of at least 1, got 0"),
    ("half on a CPU", f"{TRAIN} precision=16", 2, "precision: expected 32, bf16 or auto on a CPU, got 16"),
    ("seed", f"{TRAIN} seed={10**30}", 2, "seed: expected a number from 0"),
    ("frozen", f"{TRAIN} freeze=99", 2, "freeze: expected at most 17 layers, got 99"),
    (
        "class that is not known",
        f"{PREDICT} classes=9",
        2,
        "classes: expected ids or names of the model's classes (0 kind0, 1 kind1)",
    ),
    ("name that is nearly a class", f"{PREDICT} classes=1,kimd0", 2, "got [1, 'kimd0']; did you mean 'kind0' for 'kimd0'?"),
    ("canvas beyond reason", f"{PREDICT} imgsz=32000000", 2, "up to 16384, got 32000000; take 16384"),
]


def given(words):
    """The words of a command, of each setting the last alone."""
    verb, *pairs = words if isinstance(words, list) else words.split(" ")
    return [verb, *{pair.partition("=")[0]: pair for pair in pairs}.values()]


@pytest.mark.parametrize(("words", "code", "part"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_mistake_is_an_exit_code_and_one_sentence(words, code, part, world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    before = sorted(Path("runs").glob("*/*"))
    found = main(given(words))
    out, err = capsys.readouterr()
    assert found in (code if isinstance(code, tuple) else (code,))
    assert err.startswith("error: ")
    assert (out, err.count("\n")) == ("", 1)
    assert part in err
    assert "; " in err or "did you mean" in err, "the sentence says what to do"
    if words.startswith("train"):
        assert sorted(Path("runs").glob("*/*")) == before, "no run folder for a run that never began"


@pytest.mark.parametrize("source", ["void", "gone.jpg", "gone/*.jpg", "broken.jpg", "no-lines.txt", "gone-lines.txt"])
def test_a_wrong_source_leaves_no_folder(source, world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(world)
    text(world / "no-lines.txt", "\n")
    text(world / "gone-lines.txt", "gone.jpg\n")
    words = ["predict", "model=w.safetensors", "device=cpu", f"project={tmp_path / 'runs'}", "save_json=true"]
    assert main([*words, f"source={source}"]) == 3
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "runs").exists()
    assert main([*words, "source=good/images/val"]) == 0
    assert len(list((tmp_path / "runs" / "detect" / "predict").glob("*.png"))) == 2


def test_random_weights_are_said_to_be_so(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(world)
    said = {}
    for model in ("detect-n", "w.safetensors"):
        for verb, what in (
            ("predict", "source=good/images/val"),
            ("val", "data=good/data.yaml plots=false workers=0 split=val single_cls=true"),
        ):
            assert main([verb, f"model={model}", *what.split(), "device=cpu", "imgsz=64", f"project={tmp_path}"]) == 0
            said[verb, model] = [line for line in capsys.readouterr().err.splitlines() if "random weights" in line]
    assert {key: len(lines) for key, lines in said.items() if lines} == {("predict", "detect-n"): 1, ("val", "detect-n"): 1}
    assert "model=detect-n has random weights, it has not been trained" in said["val", "detect-n"][0]


def test_too_little_memory_is_one_sentence(world, monkeypatch, capsys):
    def no_room(*_: object) -> None:
        torch.empty(2**60)

    monkeypatch.chdir(world)
    monkeypatch.setattr("pellucid.predict.run.letterbox", no_room)
    assert main(PREDICT.split()) == 1
    err = capsys.readouterr().err
    assert "expected enough memory, got too little" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("weights", ["hostile.ckpt", "hostile2.ckpt"])
@pytest.mark.parametrize("words", [VAL, PREDICT, f"{TRAIN} exist_ok=true"])
def test_weights_that_ask_to_run_code_are_refused(words, weights, world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    assert main(given([*words.split(), f"model={weights}"])) == 3
    err = capsys.readouterr().err
    assert f"{weights}, got one that is broken or asks to run code" in err
    assert err.count("\n") == 1
    assert not Path("ran-code").exists()


@pytest.mark.parametrize(("data", "part"), [("cut", "images/train/b.jpg"), ("row", "labels/train/b.txt:2")])
def test_what_can_be_left_out_is_warned_about_and_trains(data, part, world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    assert main(given([*TRAIN.split(), f"data={data}"])) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warned) == 1
    assert part in warned[0]
    assert main(["data", "check", f"data={data}"]) == 1
    assert part in capsys.readouterr().out


def test_a_defect_of_ours_is_not_dressed_up():
    with pytest.raises(RuntimeError, match="shapes"):
        sentence_of(RuntimeError("shapes do not fit"))
    full = sentence_of(OSError(28, "No space left on device", "runs/last.ckpt"))
    assert full.startswith("runs/last.ckpt: expected")
    assert "No space left on device" in full


@pytest.mark.parametrize("form", ["plain", "json"])
def test_a_picture_that_cannot_be_read_is_told_beside_the_others(form, world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        picture(tmp_path / "photos" / f"{name}.png")
    (tmp_path / "photos" / "b.png").write_bytes(b"broken")
    words = ["predict", f"model={world}/w.safetensors", "source=photos", "device=cpu"]
    assert main([*words, *(["--json"] if form == "json" else [])]) == 1
    said = capsys.readouterr()
    assert "1 of 3 pictures could not be read: photos/b.png" in said.err
    lines = said.out.splitlines()
    assert [Path(line.partition(":")[0]).name for line in lines] == ["a.png", "c.png"] if form == "plain" else len(lines) == 3
    if form == "json":
        told = [json.loads(line) for line in lines]
        assert [one["path"] for one in told] == ["photos/a.png", "photos/b.png", "photos/c.png"]
        assert ["error" in one for one in told] == [False, True, False]


@pytest.mark.parametrize("coding", ["utf-8", "ascii"])
def test_file_names_that_are_not_utf8_are_read_and_printed(coding, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9.png")
    picture(tmp_path / "photos" / name)
    stdout = io.TextIOWrapper(io.BytesIO(), encoding=coding, errors="strict", write_through=True)
    monkeypatch.setattr(sys, "stdout", stdout)
    assert main(["predict", f"model={world}/w.safetensors", "source=photos", "device=cpu"]) == 0
    assert b"photos/caf" in stdout.buffer.getvalue()
    assert (tmp_path / "runs" / "detect" / "predict" / name).is_file()


def test_data_in_a_folder_that_is_not_utf8_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = os.fsdecode(b"donn\xe9es")
    make_squares(tmp_path / folder, train=2, val=2)
    assert main(given([*TRAIN.split(), f"data={folder}"])) == 0
    assert main(given([*VAL.split(), f"data={folder}", "model=runs/detect/train/weights/best.safetensors", "plots=false"])) == 0

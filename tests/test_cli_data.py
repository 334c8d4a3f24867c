"""The verbs that look data sets over and write them anew."""

import json

import pytest
from PIL import Image

from pellucid.cli import main
from pellucid.data import open_dataset

from .data.make import text, yolo

ROW = "0 .5 .5 .5 .5\n"


def said(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


@pytest.fixture
def source(tmp_path):
    return yolo(tmp_path / "old", {"train": {"a": ROW + "foo\n", "b": ROW}, "val": {"v": ROW}})


def test_check_with_a_repaired_copy(source, tmp_path, capsys):
    assert said(capsys, "data", "check", f"data={source}")[0] == 1
    code, out, _ = said(capsys, "data", "check", f"data={source}", "--fix", tmp_path / "new")
    assert code == 0, "the copy is clean"
    assert "fixed   train: 1 row(s) with a wrong number of fields for the task [row-fields]: left out" in out
    code, out, _ = said(capsys, "data", "check", f"data={source}", f"fix={tmp_path / 'more'}", "--json")
    answer = json.loads(out)
    assert (code, answer["exit_code"], answer["fixed"]["exit_code"]) == (0, 1, 0)
    assert answer["fixed"]["changes"][0]["places"][0].endswith("a.txt:2: 1 field")
    code, _, err = said(capsys, "data", "check", f"data={source}", f"fix={tmp_path / 'old'}")
    assert (code, "fix" in err or "out" in err) == (2, True)


def test_a_copy_holds_what_the_task_reads_only_where_one_is_named(tmp_path, capsys):
    outlines = yolo(tmp_path / "old", {"train": {"a": "0 .1 .1 .5 .1 .5 .5\n"}, "val": {"v": ""}})
    code, _, err = said(capsys, "data", "check", f"data={outlines}", f"fix={tmp_path / 'new'}")
    assert (code, "add task=segment" in err) == (2, True)
    assert said(capsys, "data", "check", f"data={outlines}", "task=segment", f"fix={tmp_path / 'new'}")[0] == 0
    assert (tmp_path / "new/labels/train/a.txt").read_text() == "0 0.1 0.1 0.5 0.1 0.5 0.5\n"


def test_stats(source, capsys):
    code, out, _ = said(capsys, "data", "stats", f"data={source}")
    assert code == 0
    assert "3 pictures in 1 groups show the same; 1 groups are in more than one split" in out, "they are painted alike"
    code, out, _ = said(capsys, "data", "stats", f"data={source}", "copies=false", "--json")
    assert (code, json.loads(out)["copies"]) == (0, None)
    assert said(capsys, "data", "stats", "data=/no/such")[0] == 3


def test_preview(source, tmp_path, capsys):
    words = ("data", "preview", f"data={source}", f"out={tmp_path / 'sheets/p.png'}")
    code, out, _ = said(capsys, *words, "count=1", "--json")
    first = json.loads(out)
    assert (code, len(first["images"])) == (0, 1)
    with Image.open(first["out"]) as sheet:
        assert sheet.size == (480, 480)
    chosen = {tuple(json.loads(said(capsys, *words, "count=1", f"seed={seed}", "--json")[1])["images"]) for seed in range(6)}
    assert len(chosen) == 2, "another seed shows another picture"
    code, out, _ = said(capsys, *words, "split=val")
    assert (code, out) == (0, f"1 of 1 pictures of val: {tmp_path / 'sheets/p-8.png'}\n")
    for word, sentence in (("count=0", "count: expected"), ("out=x.gif", "ends in .jpg or .png"), ("count=999", "at most 256")):
        assert sentence in said(capsys, *(words[:3] if word.startswith("out=") else words), word)[2]
    assert said(capsys, *words, "split=test")[0] == 3


def test_convert_and_split(source, tmp_path, capsys):
    text(tmp_path / "old/labels/train/a.txt", ROW)
    code, out, _ = said(capsys, "data", "convert", f"data={source}", f"out={tmp_path / 'c'}", "to=coco", "pictures=link", "--json")
    report = json.loads(out)
    assert (code, report["images"], report["lost"]) == (0, {"train": 2, "val": 1}, {})
    assert len(open_dataset(tmp_path / "c").splits["train"].labels) == 2
    code, out, err = said(capsys, "data", "convert", f"data={tmp_path / 'c'}", f"out={tmp_path / 'd'}", "to=voc", "task=detect")
    assert (code, err) == (0, "")
    assert out.endswith(f"data set (voc): {tmp_path / 'd'}\n")
    for i, shade in enumerate((0, 200)):
        Image.linear_gradient("L").point(lambda v, s=shade: abs(s - v)).save(tmp_path / f"old/images/train/{'ab'[i]}.jpg")
    code, out, _ = said(capsys, "data", "split", f"data={source}", f"out={tmp_path / 's'}", "val=0.34", "--json")
    dealt = json.loads(out)
    assert (code, dealt["images"], dealt["classes"]["cat"]) == (0, {"train": 2, "val": 1}, {"train": 2, "val": 1})
    code, out, _ = said(capsys, "data", "split", f"data={source}", f"out={tmp_path / 't'}", "val=0.34")
    assert (code, "0 pictures in 0 groups show the same" in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["convert", "data=trees", "out=x"], "to: expected a value"),
        (["convert", "data=trees", "out=x", "to=csv"], "to: expected one of coco, yolo, dota, voc, labelme"),
        (["convert", "data=trees", "out=x", "to=coco", "task=detekt"], "task: expected one of detect"),
        (["convert", "data=trees", "out=x", "to=coco", "pictures=move"], "pictures: expected one of copy, link"),
        (["split", "data=trees", "out=x", "val=0"], "val: expected shares above 0"),
        (["split", "data=trees", "out=x", "val=0.6", "test=0.4"], "val: expected shares above 0"),
        (["split", "data=trees", "out=x", "seed=-1"], "seed: expected a finite number of at least 0"),
        (["split", "data=trees"], "out: expected a value"),
    ],
)
def test_mistakes(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, "data", *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert list(tmp_path.iterdir()) == []


def test_check_and_train_say_the_same_of_a_set_without_val(source, tmp_path, capsys):
    assert said(capsys, "data", "check", f"data={source}")[0] != 3
    text(source, source.read_text().replace("val: images/val\n", ""))
    code, out, _ = said(capsys, "data", "check", f"data={source}")
    assert (code, "[split-missing]" in out, "`pellucid data split`" in out) == (3, True, True)
    code, _, err = said(capsys, "train", "model=detect-n", f"data={source}", f"project={tmp_path / 'runs'}", "imgsz=64", "device=cpu")
    assert (code, "expected the split 'val'" in err, (tmp_path / "runs").exists()) == (3, True, False)
    assert said(capsys, "data", "check", f"data={source}", "split=train")[0] != 3
    assert "fix" in said(capsys, "data", "check", f"data={source}", "split=train", f"fix={tmp_path / 'f'}")[2]


@pytest.mark.parametrize("place", ["/proc/y", "{}/file/y"])
@pytest.mark.parametrize("verb", ["convert", "split", "tiles"])
def test_a_place_that_cannot_be_written_is_named_as_it_was_given(verb, place, tmp_path, capsys):
    text(tmp_path / "file", "")
    quad = "0 .1 .1 .5 .1 .5 .5 .1 .5\n"
    source = yolo(tmp_path / "old", {"train": {"a": quad, "b": quad}, "val": {"v": quad}})
    for turn, name in enumerate("ab"):
        Image.linear_gradient("L").rotate(90 * turn).save(tmp_path / f"old/images/train/{name}.jpg")
    words = {"convert": ["to=yolo", "task=obb"], "split": ["val=0.34", "task=obb"], "tiles": []}[verb]
    code, _, err = said(capsys, "data", verb, f"data={source}", f"out={place.format(tmp_path)}", *words)
    assert (code, f"error: out: expected a place that can be written, got {place.format(tmp_path)} (" in err) == (2, True), err

"""The doctor: counts, findings, exit codes, text and JSON; and the sample that ships."""

import json

import pytest

from pellucid.data import doctor, open_dataset
from pellucid.data.findings import CODES, Log, settle
from pellucid.data.samples import sample_path
from pellucid.errors import DataError, PellucidWarning, UsageError

from .make import codes, text, voc, voc_object, yolo

ROW = "0 0.5 0.5 0.5 0.5\n"


def test_the_shipped_sample_is_clean():
    report = doctor.check("trees")
    assert report.exit_code == 0
    assert report.findings == ()
    assert report.names == ("tree",)
    assert {name: (part.images, part.objects) for name, part in report.splits.items()} == {"train": (17, 429), "val": (3, 94)}
    data = open_dataset("trees", strict=True)
    stems = {name: {index.path(i).stem for i in range(len(index))} for name, index in data.splits.items()}
    assert all(stem.startswith("2019_YELL_2_54_") for stem in stems["val"])
    assert not stems["val"] & stems["train"]
    assert "MIT License" in (sample_path("trees").parent / "LICENSE").read_text()
    with pytest.raises(UsageError, match="trees"):
        sample_path("cars")


def test_findings_of_the_finished_arrays(tmp_path):
    tiny = "1 .5 .5 .004 .1\n"
    source = yolo(tmp_path, {"train": {"a": ROW + tiny + ROW, "b": ""}, "val": {"v": ROW}})
    text(source, source.read_text() + "test: [images/val]\n")
    report = doctor.check(source)
    assert codes(report.findings) == {"tiny": 1, "duplicate": 1, "split-overlap": 1, "class-absent": 2}
    assert report.exit_code == 1
    assert [finding.level for finding in report.findings] == ["error", "warning", "warning", "note", "note"]
    part = report.splits["train"]
    assert (part.images, part.empty, part.objects, part.ignored, part.classes) == (2, 1, 3, 0, (2, 1))
    assert part.median_side == pytest.approx(600**0.5 * 640 / 60)  # 30x20 of a picture 60 wide
    assert "tiny" not in codes(doctor.check(source, imgsz=960).findings)
    tiles = {
        size: next(f.sentence for f in doctor.check(source, imgsz=size).findings if f.code == "tiny").count(f"tile={size}")
        for size in (32, 64)
    }
    assert tiles == {32: 1, 64: 0}, "tiles show no more of pictures of 60 px"


def test_a_sentence_ends_with_one_mark(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": ROW}})
    for name in "bc":
        text(tmp_path / f"images/train/{name}.jpg", "no picture")
        text(tmp_path / f"labels/train/{name}.txt", ROW)
    found = doctor.check(source).findings[0]
    assert (found.code, found.count) == ("image-unreadable", 2)
    assert ".;" not in found.sentence
    assert ".)" not in found.sentence


def test_exit_codes_and_what_is_printed(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": "1 .5 .5 .5 .5"}})
    assert doctor.check(source).exit_code == 0  # an absent class is only a note
    text(tmp_path / "labels/train/a.txt", ROW + "foo\n")
    report = doctor.check(source)
    assert report.exit_code == 1
    lines = report.lines()
    assert any("labels/train/a.txt:2: 1 field" in line and str(tmp_path) not in line for line in lines)
    assert "cat" in "\n".join(lines)
    text(tmp_path / "labels/train/a.txt", "9 .5 .5 .5 .5\n")
    assert doctor.check(source).exit_code == 3
    lost = doctor.check(tmp_path / "nothing")
    assert lost.exit_code == 3
    assert "no such file or folder" in lost.lines()[0]
    assert json.loads(lost.to_json())["findings"][0]["code"] == "unreadable"


def test_json_has_stable_keys(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW + "x\n"}, "val": {"v": ""}}, yaml="names: {3: 猫}\n")
    text(tmp_path / "labels/train/a.txt", "3 .5 .5 .5 .5\nx\n")
    answer = json.loads(doctor.check(source).to_json())
    assert set(answer) == {"data", "format", "imgsz", "exit_code", "splits", "classes", "keypoints", "findings"}
    assert answer["classes"] == [{"id": 3, "name": "猫", "train": 1, "val": 0}]
    assert set(answer["splits"]["val"]) == {"images", "empty", "objects", "ignored", "median_side", "labelled"}
    assert answer["splits"]["val"]["median_side"] is None
    assert set(answer["findings"][0]) == {"code", "count", "of", "places", "split", "level", "message"}


def test_an_opened_set_can_be_checked(tmp_path):
    data = open_dataset(yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": ROW}}))
    assert doctor.check(data).to_dict() == doctor.check(tmp_path).to_dict()


@pytest.mark.parametrize(("name", "told"), [("tre", True), ("Treee", True), ("tree2", False), ("car", False)])
def test_a_class_of_one_split_that_is_nearly_another_is_doubted(name, told, tmp_path):
    voc(tmp_path, {"train": {"a": voc_object("tree", 5, 5, 20, 20)}, "val": {"v": voc_object(name, 5, 5, 20, 20)}})
    report = doctor.check(tmp_path)
    places = {finding.split: finding.places for finding in report.findings if finding.code == "class-absent"}
    hint = ": is it the class {!r} misspelt?" if told else ""
    assert places == {"train": (name + hint.format("tree"),), "val": ("tree" + hint.format(name),)}


def test_a_set_that_cannot_be_trained_on_is_not_clean(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW}}, yaml="names: [cat]\n")
    report = doctor.check(source)
    (found,) = report.findings
    assert (found.code, found.level, found.count, report.exit_code) == ("split-missing", "fatal", 1, 3)
    assert "no val" in found.sentence
    assert "data split" in found.sentence
    with pytest.raises(DataError, match="'val'"):
        open_dataset(source)
    assert doctor.check(source, splits=("train",)).exit_code == 0
    assert doctor.check(source, splits=("val",)).exit_code == 3


def test_settling_findings():
    log = Log("train")
    for i in range(9):
        log.add("degenerate", f"f{i}.txt")
    log.add("label-missing", "a.jpg")
    findings = log.findings()
    assert findings[0].count == 9
    assert findings[0].places == ("f0.txt", "f1.txt", "f2.txt", "f3.txt", "f4.txt")
    with pytest.warns(PellucidWarning, match=r"train: 9 object\(s\) .*f4\.txt; \.\.\.") as caught:
        settle(findings, strict=False)
    assert len(caught) == 1
    with pytest.raises(DataError, match="9 object"):
        settle(findings, strict=True)
    settle(findings[1:], strict=True)
    assert {level for level, _ in CODES.values()} == {"fatal", "error", "warning", "note"}


def test_keypoints_are_counted(tmp_path):
    row = "0 .5 .5 .5 .5 .2 .2 2 .3 .3 1 .4 .4 0 0 0 0\n"
    yaml = "names: [cat]\nkpt_shape: [4, 3]\n"
    source = yolo(tmp_path, {"train": {"a": row * 2}, "val": {"v": ""}}, yaml=yaml)
    report = doctor.check(source, ("boxes", "keypoints"))
    assert report.splits["train"].labelled == 0.5
    assert "4 keypoints of 3 numbers, none is known to change places in a mirror; labelled: train 50%" in report.lines()
    content = json.loads(report.to_json())
    assert content["keypoints"]["names"] == ["point 0", "point 1", "point 2", "point 3"]
    assert (content["splits"]["train"]["labelled"], content["splits"]["val"]["labelled"]) == (0.5, None)
    text(source, source.read_text() + "flip_idx: [1, 0, 3, 2]\n")
    assert "2 pairs change places in a mirror" in "\n".join(doctor.check(source, ("boxes", "keypoints")).lines())
    assert json.loads(doctor.check(source).to_json())["keypoints"] is None


def test_a_thin_turned_box_is_tiny_although_its_bounds_are_not(tmp_path):
    thin = "0 .2 .2 .8 .8 .79 .81 .19 .21\n"
    source = yolo(tmp_path, {"train": {"a": thin}, "val": {"v": thin}}, width=60, height=60)
    assert "tiny" in codes(doctor.check(source, ("boxes", "rboxes"), imgsz=60).findings)
    assert "tiny" not in codes(doctor.check(source, imgsz=60).findings)

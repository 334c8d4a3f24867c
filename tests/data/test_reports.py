"""What is said of data that are not what they look: shared labels, misspelled keys, clipped areas, boxes as outlines."""

import json

import pytest

from pellucid.data import doctor, open_dataset
from pellucid.data.convert import convert
from pellucid.data.readers import read_dataset
from pellucid.data.repair import repair
from pellucid.data.stats import stats
from pellucid.errors import DataError, PellucidWarning

from .make import boxes, coco, codes, picture, text, yolo
from .test_dota import dota

ROW = "0 .5 .5 .5 .5\n"
IMAGE = {"id": 1, "file_name": "a.jpg", "width": 60, "height": 40}
NOTE = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [5, 5, 20, 10], "area": 200, "iscrowd": 0}


def test_a_label_of_two_pictures_is_counted_and_taken_apart(tmp_path):
    source = yolo(tmp_path / "old", {"train": {"a": ROW, "b": ROW}, "val": {"a": ROW}})
    picture(tmp_path / "old/images/train/a.png")
    report = doctor.check(source)
    assert codes(report.findings) == {"label-shared": 1, "class-absent": 2}
    assert report.splits["train"].objects == 3
    shared = next(finding for finding in report.findings if finding.code == "label-shared")
    assert shared.places[0].endswith("labels/train/a.txt")
    repair(source, tmp_path / "new")
    assert "label-shared" not in codes(doctor.check(tmp_path / "new").findings)
    assert len(list((tmp_path / "new/labels/train").iterdir())) == 3


def test_a_dota_label_of_two_pictures_is_counted(tmp_path):
    root = dota(tmp_path, {"train": {"a": "1 1 9 1 9 5 1 5 ship 0\n"}, "val": {"a": "1 1 9 1 9 5 1 5 ship 0\n"}})
    picture(root / "train/images/a.jpg")
    assert codes(read_dataset(root, ("boxes", "rboxes")).all_findings()) == {"label-shared": 1}


def test_a_label_file_in_capitals_is_read(tmp_path):
    source = yolo(tmp_path, {"train": {"B": None, "c": ROW}, "val": {"v": ROW}})
    text(tmp_path / "labels/train/B.TXT", ROW + ROW)
    text(tmp_path / "labels/train/lost.TXT", ROW)
    index = read_dataset(source).splits["train"]
    assert [len(boxes(index, row)) for row in range(2)] == [2, 1]
    assert codes(index.findings) == {"label-without-image": 1}, "and one without a picture is told"


def test_check_and_stats_mean_the_same_by_empty(tmp_path):
    size = {"width": 60, "height": 40}
    images = [{"id": i, "file_name": f"{i}.jpg", **size} for i in range(3)]
    notes = [{**NOTE, "image_id": 0}, {**NOTE, "id": 2, "image_id": 1, "iscrowd": 1}]
    for split in ("train", "val"):
        coco(tmp_path, split, [dict(image) for image in images], notes, [{"id": 1, "name": "cat"}])
    data = read_dataset(tmp_path)
    found = stats(data).content["splits"]["train"]
    assert (found["empty"], found["objects"], found["ignored"]) == (1, 1, 1)
    assert doctor.check(data).splits["train"].empty == 1


@pytest.mark.parametrize(
    ("key", "meant"), [("trian", "train"), ("Val", "val"), ("vla", "val"), ("tset", "test"), ("name", "names"), ("kpt_shapes", "kpt_shape")]
)
def test_a_key_that_is_nearly_one_is_refused(key, meant, tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": ROW}, "test": {"t": ROW}}, yaml="kpt_shape: [1, 3]\nnames: [cat]\n")
    source.write_text(source.read_text().replace(f"{meant}:", f"{key}:"))
    with pytest.raises(DataError, match=f"data.yaml: expected `{meant}`, got the key '{key}'"):
        read_dataset(source)


def test_keys_of_others_pass(tmp_path):
    extra = "download: x\nroboflow: {a: 1}\nname: pets\nlicense: MIT\nversion: 3\ntext: y\ntask: detect\ninfo: z\nchannels: 3\nurl: u\n"
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": ROW}}, yaml="names: [cat]\n" + extra)
    assert len(read_dataset(source).splits["train"]) == 1


OVER = {"bbox": [-5, -5, 50, 40], "segmentation": [[-5, -5, 45, -5, 45, 35, -5, 35]]}


@pytest.mark.parametrize(
    ("note", "needs", "expected"),
    [
        ({"bbox": [-5, -5, 50, 50], "area": 2500}, None, 45 * 40),
        ({"bbox": [-5, -5, 50, 40], "area": 1000}, None, 1000 * 45 * 35 / 2000),  # half of the box is filled
        ({**OVER, "area": 2000}, None, 45 * 35),
        ({**OVER, "area": 2000}, ("boxes",), 45 * 35),
        ({"bbox": [5, 5, 20, 10], "area": 123}, None, 123),
    ],
)
def test_what_is_clipped_is_smaller(note, needs, expected, tmp_path):
    for split in ("train", "val"):
        coco(tmp_path / "old", split, [dict(IMAGE)], [{**NOTE, **note}], [{"id": 1, "name": "cat"}])
    repair(tmp_path / "old", tmp_path / "new", needs)
    (entry,) = json.loads((tmp_path / "new/annotations/instances_train.json").read_text())["annotations"]
    assert entry["area"] == pytest.approx(expected, rel=1e-5)
    again = read_dataset(tmp_path / "new")
    assert set(codes(again.all_findings())) == set()


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        ({"bbox": [1, 2, 3]}, "expected `bbox` as x, y, width, height, got [1, 2, 3]"),
        ({"bbox": [1, 2, [3], "x"]}, "expected `bbox` as x, y, width, height, got [1, 2, [3], 'x']"),
        ({"bbox": None, "segmentation": [["a", 1, 2]]}, "expected `segmentation` as lists of x and y, or run lengths with their size, got"),
        ({"bbox": None, "segmentation": [[1, 2, 3, 4, 5]]}, "expected `segmentation` as lists of x and y"),
        ({"bbox": None, "segmentation": {"size": [40, 60]}}, "expected `segmentation` as lists of x and y"),
    ],
)
def test_a_malformed_field_is_named(note, reason, tmp_path):
    coco(tmp_path, "train", [dict(IMAGE)], [{**NOTE, **note}], [{"id": 1, "name": "cat"}])
    (finding,) = read_dataset(tmp_path).splits["train"].findings
    assert finding.code == "object-malformed"
    assert f"annotation 1: {reason}" in finding.places[0]


def test_one_id_with_two_names(tmp_path):
    names = [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]
    coco(tmp_path / "one", "train", [dict(IMAGE)], [NOTE], names)
    with pytest.raises(DataError, match=r"instances_train.json: category 1 is 'a' and 'b'; give one of them another id"):
        read_dataset(tmp_path / "one")
    for split, name in zip(("train", "val"), names, strict=True):
        coco(tmp_path / "two", split, [dict(IMAGE)], [NOTE], [name])
    with pytest.raises(DataError, match=r"instances_val.json: category 1 is 'b' here but 'a' in instances_train.json; agree"):
        read_dataset(tmp_path / "two")


@pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")
def test_boxes_among_outlines_are_counted_where_they_become_outlines(tmp_path):
    note = {**NOTE, "category_id": 0, "image_id": 0}
    outline = {**note, "id": 2, "area": 112.5, "bbox": [5, 5, 15, 15], "segmentation": [[5, 5, 20, 5, 10, 20]]}
    for split, notes in (("train", [note, outline]), ("val", [note])):
        coco(tmp_path / "old", split, [{**IMAGE, "id": 0}], notes, [{"id": 0, "name": "cat"}])
    with pytest.warns(PellucidWarning, match=r"2 object\(s\) without an outline; their box is written as one"):
        report = convert(tmp_path / "old", tmp_path / "new", "labelme")
    assert report.lost["outlined"]["count"] == 2
    assert "outlined" not in convert(tmp_path / "old", tmp_path / "plain", "labelme", ("boxes",)).lost, "among boxes a rectangle is one"
    assert len(open_dataset(tmp_path / "plain").splits["train"].labels) == 2

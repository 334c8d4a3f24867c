"""The YOLO reader: pairing, rows, class maps, places of files, hostile input."""

import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pellucid.data import doctor, open_dataset
from pellucid.data.findings import Log
from pellucid.data.images import read_image
from pellucid.data.readers import read_dataset
from pellucid.data.readers.base import Request
from pellucid.data.readers.place import Canvas
from pellucid.data.readers.yolo_rows import READERS, RowError, parse
from pellucid.errors import DataError, MissingFileError, PellucidWarning, UsageError
from pellucid.geometry.keypoints import KeypointSpec

from .make import boxes, codes, picture, text, yolo

ROW = "0 0.5 0.5 0.5 0.5\n"  # 15 10 45 30 of a 60x40 picture


def test_rows_become_pixel_boxes(tmp_path):
    data = open_dataset(yolo(tmp_path, {"train": {"a": ROW + "\n1 0.25 0.25 0.1 0.2", "b": ""}, "val": {"c": "1.0 .5 .5 1 1"}}))
    assert data.format == "yolo"
    assert data.names == ("cat", "dog")
    train, val = data.splits["train"], data.splits["val"]
    assert boxes(train, 0) == [[15, 10, 45, 30], [12, 6, 18, 14]]
    assert train.instances(0).labels.tolist() == [0, 1]
    assert not train.instances(0).ignore.any()
    assert len(train.instances(1)) == 0
    assert boxes(val, 0) == [[0, 0, 60, 40]]
    assert train.sizes.tolist() == [[40, 60], [40, 60]]
    assert train.path(0) == tmp_path / "images/train/a.jpg"


BAD_ROWS = """foo
0 a b c d
0 nan .5 .5 .5
0 inf .5 .5 .5
0 1e999 0 1 1
0 .5 .5 .5
0 .5 .5 .5 .5 .9
0 .1 .1 .2 .1 .3 .3 .4
0 1_0 .5 .5 .5
0 320 240 50 40
0.5 .5 .5 .5 .5
\xff\xfe 1 2 3 4
0 .5 .5 0 .5
0 .5 .5 -.1 .5
0 -.3 .5 .1 .1""".splitlines()


@pytest.mark.parametrize("row", BAD_ROWS)
def test_a_bad_row_is_named_and_shifts_nothing(tmp_path, row):
    rows = {"train": {"1": ROW, "2": f"{ROW}{row}\n", "3": "1 0.1 0.1 0.1 0.1\n", "4": ""}, "val": {"v": ROW}}
    source = yolo(tmp_path, rows)
    for _ in range(2):
        with pytest.warns(PellucidWarning, match=r"labels/train/2\.txt:2"):
            train = open_dataset(source).splits["train"]
        assert [train.path(i).stem for i in range(4)] == ["1", "2", "3", "4"]
        assert [train.instances(i).labels.tolist() for i in range(4)] == [[0], [0], [1], []]
        assert sum(codes(train.findings).values()) == 1
    with pytest.raises(DataError, match=r"2\.txt:2"):
        open_dataset(source, strict=True)


FIELDS = [b"0", b"1", b".5", b"-3", b"nan", b"1e400", b"x", b"9999999999999999999999"]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.lists(st.sampled_from(FIELDS), max_size=14).map(b" ".join), st.sampled_from(sorted(READERS)))
def test_any_bytes_are_a_row_or_a_finding(content, kind):
    points = KeypointSpec.make(2, 2)
    columns = Request(("boxes", kind), None).columns() if kind != "boxes" else ()
    for line in content.splitlines():
        log = Log()
        try:
            class_id, values = parse(line.split())
            drawn, _ = READERS[kind](values, (40, 60), points)
        except RowError as error:
            log.add(error.args[0], "x")
            continue
        assert isinstance(class_id, int)
        placed = Canvas((40, 60), log, columns, points).place(drawn, "x")
        if placed is None:
            assert log.findings()
            continue
        x1, y1, x2, y2 = placed[0]
        assert 0 <= x1 < x2 <= 60
        assert 0 <= y1 < y2 <= 40
        for name in columns:
            assert np.isfinite(placed[1][name]).all() or name == "polygons"


@pytest.mark.parametrize("content", [b"0 .5 .5\0 .5 .5", "0 .5 .5 .5 .5".encode("utf-16")])
def test_a_binary_label_file_is_left_out_with_its_image(tmp_path, content):
    source = yolo(tmp_path, {"train": {"a": ROW, "b": ROW}, "val": {"c": ROW}})
    text(tmp_path / "labels/train/b.txt", content)
    with pytest.warns(PellucidWarning, match=r"label-unreadable.*b\.txt"):
        data = open_dataset(source)
    assert len(data.splits["train"]) == 1


def test_marks_and_line_ends_of_other_systems(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"c": ROW}})
    text(tmp_path / "labels/train/a.txt", b"\xef\xbb\xbf0 .5 .5 .5 .5\r\n\r\n1\t.5 .5 .1 .1  \r\n")
    assert open_dataset(source).splits["train"].labels.tolist() == [0, 1]


def test_a_class_past_the_names_stops_with_its_place(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW + "2 .5 .5 .1 .1\n"}, "val": {"c": "-1 .5 .5 .1 .1\n"}})
    with pytest.raises(DataError, match=r"a\.txt:2: class 2, but the classes are 0 to 1") as caught:
        open_dataset(source)
    assert caught.value.exit_code == 3


def test_rows_of_another_task_stop(tmp_path):
    pose = "0 .1 .1 .5 .1 .5 .5 2\n"
    with pytest.raises(DataError, match=r"not one label row.*a\.txt:1: 8 fields where a row has 5"):
        open_dataset(yolo(tmp_path, {"train": {"a": pose * 3}, "val": {"c": ROW}}))
    with pytest.raises(DataError, match=r"not one label row.*a\.txt:1"):
        open_dataset(tmp_path, needs=("boxes", "polygons"))
    with pytest.raises(DataError, match=r"data\.yaml: expected `kpt_shape: \[K, 3\]`"):
        open_dataset(tmp_path, needs=("boxes", "keypoints"))
    with pytest.raises(UsageError, match="one kind more, not boxes, polygons, rboxes"):
        open_dataset(tmp_path, needs=("boxes", "polygons", "rboxes"))


def test_boxes_over_the_edge(tmp_path):
    inner = "0 0.0001 0.5 0.1 0.1\n"
    rows = {
        "train": {"a": "0 0.02 0.5 0.1 0.2\n", "b": "1 1.2 .5 .2 .2\n" + ROW, "c": "0 0.5 0.5 1.000001 1.0\n"},
        "val": {"v": inner + ROW},
    }
    data = read_dataset(yolo(tmp_path, rows))
    train = data.splits["train"]
    assert codes(train.findings) == {"clipped": 1, "outside": 1}
    assert boxes(train, 0) == [[0, 16, 4.2, 24]]
    assert boxes(train, 1) == [[15, 10, 45, 30]]
    assert boxes(train, 2) == [[0, 0, 60, 40]]


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_labels_and_pixels_share_the_displayed_frame(tmp_path, orientation):
    source = yolo(tmp_path, {"train": {"a": None}, "val": {"c": ROW}})
    shown = np.zeros((60, 40, 3) if orientation != 3 else (40, 60, 3), np.uint8)
    height, width = shown.shape[:2]
    shown[8:24, 24:36] = (255, 0, 0)
    stored = Image.fromarray(np.rot90(shown, {6: 1, 8: 3, 3: 2}[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "images/train/a.jpg", exif=exif, quality=95, subsampling=0)
    text(tmp_path / "labels/train/a.txt", f"0 {30 / width} {16 / height} {12 / width} {16 / height}")
    index = open_dataset(source).splits["train"]
    assert index.sizes.tolist() == [[height, width]]
    x1, y1, x2, y2 = (round(v) for v in boxes(index, 0)[0])
    red = read_image(index.path(0))[..., 0] > 128
    assert red[y1:y2, x1:x2].mean() > 0.97
    assert red.sum() == pytest.approx((x2 - x1) * (y2 - y1), rel=0.03)


def test_labels_beside_the_pictures(tmp_path):
    for folder in ("x/images", "y/images"):
        picture(tmp_path / folder / "a.jpg")
    text(tmp_path / "x/images/a.txt", ROW)
    text(tmp_path / "y/labels/a.txt", "1 .5 .5 .5 .5\n")
    source = text(tmp_path / "data.yaml", "names: [cat, dog]\ntrain: [x/images, y/images]\nval: x/images\n")
    train = open_dataset(source).splits["train"]
    assert train.labels.tolist() == [0, 1]
    assert codes(train.findings) == {"labels-beside": 1}
    text(tmp_path / "y/images/a.txt", ROW)
    with pytest.warns(PellucidWarning, match="label-twice"):
        train = open_dataset(source).splits["train"]
    assert train.labels.tolist() == [0, 1]


def test_the_last_images_folder_becomes_labels(tmp_path):
    root = tmp_path / "images" / "set"
    picture(root / "images" / "sub" / "a.jpg")
    text(root / "labels" / "sub" / "a.txt", ROW)
    source = text(root / "data.yaml", "names: [cat]\ntrain: images\nval: images\n")
    assert len(open_dataset(source).splits["train"].labels) == 1


def test_negatives_whichever_way_they_are_written(tmp_path):
    data = open_dataset(yolo(tmp_path, {"train": {"a": "", "b": None, "c": "\n \n", "d": ROW}, "val": {"v": ""}}))
    assert np.diff(data.splits["train"].start).tolist() == [0, 0, 0, 1]
    assert codes(data.all_findings()) == {"label-missing": 1}


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_split_without_any_label_file_is_refused_and_one_of_empty_files_is_not(split, tmp_path):
    files = {"train": {"a": ROW}, "val": {"v": ROW}, split: {"x": None, "y": None}}
    source = yolo(tmp_path, files)
    with pytest.raises(
        DataError, match=rf"^{split}: 1 split.*give each picture an empty one.*labels-lost.*looked in \S*labels/{split} and"
    ):
        open_dataset(source)
    assert doctor.check(source).exit_code == 3
    text(tmp_path / f"labels/{split}/x.txt", "")
    assert doctor.check(source).exit_code == 0
    assert len(open_dataset(source).splits[split]) == 2


def found_in(tmp_path, rows, split="train"):
    """(report, its findings by code) of a set with these rows in one picture of a split, for classes cat, white cell and dog."""
    files = {"train": {"a": ROW}, "val": {"v": ROW}, split: {"x": rows}}
    report = doctor.check(yolo(tmp_path, files, yaml="names: {0: cat, 2: white cell, 7: dog}\n"), imgsz=64)
    return report, {finding.code: finding for finding in report.findings if finding.split == split}


def test_class_names_where_ids_belong_are_told_with_their_ids(tmp_path):
    report, found = found_in(tmp_path, ROW * 3 + "dog .6 .5 .1 .1\nwhite cell .4 .4 .1 .1\ncow .4 .4 .1 .1\n")
    assert report.exit_code == 1
    assert found["row-class"].sentence.startswith("train: 3 of 6 row(s) whose class is not a whole number; left out [row-class] (")
    assert [place.split(": ", 1)[1] for place in found["row-class"].places] == [
        "class must be a whole number, got dog; dog is id 7",
        "class must be a whole number, got white; white cell is id 2",
        "class must be a whole number, got cow",
    ]
    assert found["row-class"].places[0].startswith(str(tmp_path / "labels/train/x.txt:4"))


@pytest.mark.parametrize("split", ["train", "val"])
def test_most_rows_of_what_is_learnt_from_must_be_usable(split, tmp_path):
    report, found = found_in(tmp_path, ROW + "dog .6 .5 .1 .1\n0.5 .5 .5 .1 .1\n", split)
    assert (report.exit_code, "rows-most" in found) == ((3, True) if split == "train" else (1, False))
    if split == "train":
        with pytest.raises(DataError, match=r"rows-most.*2 of 3 rows, the first \S*x\.txt:2: class must be.*got dog; dog is id 7"):
            open_dataset(tmp_path)


@pytest.mark.parametrize(("rows", "told"), [
    ("0 .7 .5 .9 .9\n0 .6 .6 .9 .9\n" + ROW, True),
    ("0 .7 .5 .9 .9\n" + ROW * 3, False),
    ("0 .9 .9 .5 .5\n" * 3, False),
])  # fmt: skip
def test_boxes_over_the_edge_that_look_like_corners(rows, told, tmp_path):
    finding = found_in(tmp_path, rows)[1]["clipped"]
    assert finding.of == rows.count("\n")
    assert ("look like corners x1 y1 x2 y2, where a row is class cx cy w h" in finding.sentence) == told


@pytest.mark.parametrize(("row", "place"), [
    ("0,.5,.5,.1,.1", "1 field: blanks belong between the numbers of a row, and no commas"),
    ("0, .5, .5, .1, .1", "'0, .5, .5, .1, .1': blanks belong between the numbers of a row, and no commas"),
    ("0 .5 .5 0 .2", "x 30 to 30, y 16 to 24 px"),
])  # fmt: skip
def test_a_bad_row_is_told_by_what_is_bad_in_it(row, place, tmp_path):
    report, _ = found_in(tmp_path, ROW + row)
    assert [text.split(": ", 1)[1] for finding in report.findings for text in finding.places if "x.txt:2" in text] == [place]


def test_labels_without_pictures_and_strange_files(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": ROW}})
    text(tmp_path / "labels/train/ghost.txt", ROW)
    text(tmp_path / "labels/train/classes.txt", "cat\ndog\n")
    text(tmp_path / "images/train/live.heic", "x")
    text(tmp_path / "images/train/._a.jpg", "x")
    text(tmp_path / "images/train/note.md", "x")
    found = {finding.code: finding for finding in read_dataset(source).splits["train"].findings}
    assert set(found) == {"label-without-image", "image-format"}
    assert found["label-without-image"].places == (str(tmp_path / "labels/train/ghost.txt"),)


def test_broken_pictures_are_left_out_alone(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW, "b": "1 .5 .5 .5 .5", "c": ROW, "d": ROW}, "val": {"v": ROW}}, width=300, height=300)
    whole = (tmp_path / "images/train/a.jpg").read_bytes()
    (tmp_path / "images/train/a.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "images/train/c.jpg").write_bytes(b"")
    with pytest.warns(PellucidWarning, match=r"2 image\(s\) cannot be read.*a\.jpg.*c\.jpg"):
        train = open_dataset(source).splits["train"]
    assert [train.path(i).stem for i in range(2)] == ["b", "d"]
    assert [train.instances(i).labels.tolist() for i in range(2)] == [[1], [0]]


@pytest.mark.parametrize(("break_it", "match"), [
    (lambda root: [path.unlink() for path in (root / "images/train").iterdir()], "split 'train' is empty"),
    (lambda root: [path.write_bytes(b"x") for path in (root / "images/train").iterdir()], r"split 'train' is empty.*a\.jpg"),
    (lambda root: (root / "images").rename(root / "pictures"), r"expected the pictures of 'train' in .*images/train"),
    (lambda root: text(root / "data.yaml", "names: [cat, dog]\ntrain: images/train\n"), "expected the split 'val', found train"),
    (lambda root: text(root / "data.yaml", "train: images/train\nval: images/val\n"), "expected `names` with at least one class"),
    (lambda root: text(root / "data.yaml", "nc: 3\nnames: [a, b]\ntrain: images/train\nval: images/val\n"), "`nc` says 3"),
    (lambda root: text(root / "data.yaml", "names: {x: a}\ntrain: images/train\nval: images/val\n"), "expected `names`"),
    (lambda root: text(root / "data.yaml", "names: {-1: a}\ntrain: images/train\nval: images/val\n"), "ids from 0"),
    (lambda root: text(root / "data.yaml", "names: [a]\ntrain: {x: 1}\nval: images/val\n"), "expected `train` as a folder"),
    (lambda root: text(root / "data.yaml", "names: [a]\ntrain: data.yaml\nval: images/val\n"), "to be a folder or a .txt list"),
    (lambda root: text(root / "data.yaml", "- a\n- b\n"), "expected a mapping"),
    (lambda root: text(root / "data.yaml", "a: [b\n"), "expected YAML"),
    (lambda root: text(root / "data.yaml", b"\xff\xfe\xfd"), "expected YAML"),
    (lambda root: text(root / "data.yaml", "[" * 20000), "expected YAML"),
    (lambda root: (root / "images/train/loop").symlink_to(root / "images"), "leads back to"),
])  # fmt: skip
def test_what_cannot_be_used_stops_with_a_sentence(tmp_path, break_it, match):
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": ROW}})
    break_it(tmp_path)
    with pytest.raises(DataError, match=match):
        open_dataset(source)


def test_names_keep_what_was_written(tmp_path):
    source = yolo(
        tmp_path, {"train": {"a": "7 .5 .5 .5 .5"}, "val": {"v": "3 .5 .5 .5 .5"}}, yaml="names: {7: no, 3: 猫}\ndownload: rm -rf /\n"
    )
    data = open_dataset(source)
    assert data.names == ("猫", "no")
    assert data.category_ids == (3, 7)
    assert data.splits["train"].labels.tolist() == [1]
    assert data.splits["val"].names == ("猫", "no")
    one = data.single_class()
    assert one.splits["train"].labels.tolist() == [0]
    assert len(one.names) == 1


def test_keys_without_a_value_count_as_absent(tmp_path):
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": ROW}}, yaml="names: [cat]\nnc: null\npath:\ntest: ~\n")
    assert tuple(read_dataset(source).splits) == ("train", "val")


def test_list_files_and_non_ascii_paths(tmp_path):
    root = tmp_path / "数据 集"
    source = yolo(root, {"train": {"지단": ROW, "b": ROW}, "val": {"v": ROW}})
    lines = [
        "images/train/지단.jpg",
        "./images/train/b.jpg",
        str(root / "images/val/v.jpg"),
        "",
        "images/train/b.jpg",
        "images/train/lost.jpg",
    ]
    text(root / "lists/train.txt", "\n".join(lines))
    text(source, "names: [cat, dog]\ntrain: lists/train.txt\nval: [images/val]\n")
    data = read_dataset(source, splits=("train", "val"))
    train = data.splits["train"]
    assert [train.path(i).name for i in range(len(train))] == ["지단.jpg", "b.jpg", "v.jpg"]
    assert len(train.labels) == 3
    assert codes(train.findings) == {"image-twice": 1, "image-missing": 1}
    text(root / "lists/train.txt", "../../../etc/passwd.jpg\n")
    with pytest.raises(DataError, match=r"train\.txt:1: expected a path below"):
        open_dataset(source)


def test_a_list_under_the_yaml_folder_is_read_whatever_the_working_folder(tmp_path, monkeypatch):
    yolo(tmp_path / "set", {"train": {"a": ROW}, "valid": {"v": ROW}})
    text(tmp_path / "set" / "data.yaml", "names: [cat]\ntrain: ../images/train\nval: ../images/valid\n")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(PellucidWarning, match="path-guess"):
        data = open_dataset("set")
    assert len(data.splits["val"]) == 1
    assert data.splits["val"].path(0) == tmp_path / "set/images/valid/v.jpg"


def test_finding_the_yaml(tmp_path):
    with pytest.raises(MissingFileError, match="no such file or folder"):
        open_dataset(tmp_path / "nothing")
    with pytest.raises(DataError, match="found nothing"):
        open_dataset(tmp_path)
    source = yolo(tmp_path, {"train": {"a": ROW}, "val": {"v": ROW}})
    with pytest.raises(DataError, match="name the YAML or the folder"):
        open_dataset(tmp_path / "images/train/a.jpg")
    source.rename(tmp_path / "shop.yaml")
    assert len(open_dataset(tmp_path).splits["train"]) == 1
    text(tmp_path / "other.yml", "train: x\n")
    with pytest.raises(DataError, match=r"found shop\.yaml, other\.yml|found other\.yml, shop\.yaml"):
        open_dataset(tmp_path)


def test_thousands_of_labels_a_second(tmp_path):
    source = yolo(tmp_path, {"train": {f"{i:04d}": ROW * 5 for i in range(400)}, "val": {"v": ROW}})
    start = time.process_time()
    data = open_dataset(source)
    assert len(data.splits["train"].labels) == 2000
    assert 400 / (time.process_time() - start) > 1000
    assert os.path.isabs(data.splits["train"].root)

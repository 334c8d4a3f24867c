"""The DOTA reader."""

import math

import pytest
import torch

from pellucid.data import open_dataset
from pellucid.data.readers import read_dataset
from pellucid.errors import DataError, PellucidWarning, UsageError

from .make import boxes, codes, picture, text

NEEDS = ("boxes", "rboxes")
CAR = "10 5 30 5 30 15 10 15 Car 0\n"


def row(corners, name="Car", difficult=0) -> str:
    return " ".join(f"{value:.3f}" for value in corners) + f" {name} {difficult}\n"


def dota(root, splits, **options):
    """splits {split: {stem: label text or None}} -> the folder."""
    for split, labels in splits.items():
        for stem, content in labels.items():
            picture(root / split / "images" / f"{stem}.png", **options)
            if content is not None:
                text(root / split / "labelTxt" / f"{stem}.txt", content)
    return root


def rboxes(index, row_):
    return index.instances(row_).shapes["rboxes"].data


def test_rotated_boxes_names_and_difficult(tmp_path):
    c, s = 10 * math.cos(0.5), 10 * math.sin(0.5)
    turned = [30 - c, 20 - s, 30 + c, 20 + s, 30 + c - s / 2, 20 + s + c / 2, 30 - c - s / 2, 20 - s + c / 2]
    train = {"a": row(turned, "van", 1) + CAR, "b": ""}
    data = read_dataset(dota(tmp_path, {"train": train, "val": {"v": CAR}}), NEEDS)
    assert data.format == "dota"
    assert data.names == ("Car", "van")
    index = data.splits["train"]
    assert index.labels.tolist() == [1, 0]
    assert index.ignore.tolist() == [True, False]
    assert rboxes(index, 0)[0].tolist() == pytest.approx([30 - s / 4, 20 + c / 4, 20, 5, 0.5], abs=2e-3)
    assert rboxes(index, 0)[1].tolist() == pytest.approx([20, 10, 20, 10, 0], abs=1e-5)
    assert boxes(index, 0)[1] == [10, 5, 30, 15]
    assert codes(data.all_findings()) == {"ignored": 1}


@pytest.mark.parametrize("content", [
    "imagesource:GoogleEarth\ngsd:0.146343590398\n" + CAR,
    "imagesource:GoogleEarth\r\ngsd:null\r\n" + CAR.replace("\n", "\r\n"),
    "\ufeff" + CAR,
    "\n\n" + CAR.replace(" ", "\t"),
    CAR.replace(" Car 0\n", " 'Car' 0"),
    CAR.replace(" 0\n", ""),
    "Acquisition Dates:2018\nimagesource:x\n" + CAR,
])  # fmt: skip
def test_ways_of_writing_the_same(tmp_path, content):
    data = open_dataset(dota(tmp_path, {"train": {"a": content}, "val": {"v": CAR}}), NEEDS, strict=True)
    index = data.splits["train"]
    assert data.names == ("Car",)
    assert rboxes(index, 0).tolist() == [pytest.approx([20, 10, 20, 10, 0], abs=1e-5)]
    assert index.ignore.tolist() == [False]


def test_odd_names_find_their_class(tmp_path):
    small, other = CAR.replace("Car", "small vehicle"), CAR.replace("Car", "Small-Vehicle")
    root = dota(tmp_path, {"train": {"a": small + small + other, "b": CAR.replace("Car", '"Roundabout 2"')}, "val": {"v": small}})
    data = read_dataset(root, NEEDS)
    assert data.names == ("Roundabout 2", "small vehicle")
    assert data.splits["train"].labels.tolist() == [1, 1, 1, 0]
    assert codes(data.all_findings()) == {"name-spelled": 1}
    with pytest.warns(PellucidWarning, match=r"a\.txt:3: 'Small-Vehicle' is 'small vehicle'"):
        open_dataset(root, NEEDS)
    text(root / "classes.txt", "ship\nSmall-Vehicle\nsmall vehicle\nRoundabout 2\n")
    assert read_dataset(root, NEEDS).splits["train"].labels.tolist() == [2, 2, 1, 3]
    text(root / "classes.txt", "ship\n")
    with pytest.raises(DataError, match=r"a\.txt:1: class 'small vehicle'"):
        open_dataset(root, NEEDS)


def test_splits_without_objects_are_read(tmp_path):
    """Three empty files, a missing one, and a picture without any."""
    root = dota(tmp_path, {"train": {"a": CAR}, "val": {"u": "", "v": "imagesource:x\n", "w": "", "x": None}})
    data = read_dataset(root, NEEDS)
    assert [len(data.splits["val"].instances(i)) for i in range(4)] == [0, 0, 0, 0]
    assert data.splits["val"].instances(0).shapes["rboxes"].data.shape == (0, 5)
    assert codes(data.all_findings()) == {"label-missing": 1}


def test_objects_over_the_edge_stay_whole(tmp_path):
    turned = [-10, 20, 10, 0, 20, 10, 0, 30]
    outside = [-30, 0, -10, 0, -10, 10, -30, 10]
    index = read_dataset(dota(tmp_path, {"train": {"a": row(turned) + row(outside)}, "val": {"v": CAR}}), NEEDS).splits["train"]
    assert rboxes(index, 0).tolist() == [
        pytest.approx([5, 15, math.hypot(20, 20), math.hypot(10, 10), 3 * math.pi / 4 - math.pi], abs=1e-4)
    ]
    assert boxes(index, 0) == [[0, 0, 20, 30]]
    assert codes(index.findings) == {"outside": 1}


def test_what_is_left_out_is_counted_with_its_line(tmp_path):
    bad = [
        "1 2 3 4 5 6 7 8",
        "a 5 30 5 30 15 10 15 Car 0",
        "nan 5 30 5 30 15 10 15 Car 0",
        "5 5 5 5 5 5 5 5 Car 0",
        "1 1 2 2 3 3 4 4 Car 0",
    ]
    train = {"a": CAR + "\n".join(bad) + "\n" + CAR, "b": CAR, "c": b"\0\0", "d": CAR}
    root = dota(tmp_path, {"train": train, "val": {"v": CAR}})
    (root / "train/images/d.png").unlink()
    (root / "train/images/b.png").write_bytes(b"no picture")
    text(root / "train/images/e.gif", "x")
    index = read_dataset(root, NEEDS).splits["train"]
    assert [index.path(i).name for i in range(len(index))] == ["a.png"]
    assert len(index.instances(0)) == 2
    assert codes(index.findings) == {
        "object-malformed": 2,
        "row-number": 1,
        "degenerate": 2,
        "image-unreadable": 1,
        "label-unreadable": 1,
        "image-format": 1,
        "label-without-image": 1,
    }
    malformed = next(finding for finding in index.findings if finding.code == "object-malformed")
    assert malformed.places[0].endswith("a.txt:2: expected 8 numbers, a class and a flag, found 8 fields")
    assert "a.txt:3" in malformed.places[1]


def test_corners_that_are_no_rectangle_are_counted(tmp_path):
    root = dota(tmp_path, {"train": {"a": row([10, 5, 30, 5, 36, 15, 10, 15]) + CAR}, "val": {"v": CAR}})
    index = read_dataset(root, NEEDS).splits["train"]
    assert codes(index.findings) == {"not-rectangle": 1}
    assert rboxes(index, 0)[0, 2] * rboxes(index, 0)[0, 3] == pytest.approx(260, rel=1e-3)


def test_the_other_layout_and_label_folders_of_other_names(tmp_path):
    for split in ("train", "val"):
        picture(tmp_path / "images" / split / "part1" / "P1.png")
        text(tmp_path / "labelTxt-v1.5" / split / "P1.txt", CAR)
    data = open_dataset(tmp_path, NEEDS, strict=True)
    assert [len(index.instances(0)) for index in data.splits.values()] == [1, 1]
    (tmp_path / "labelTxt-v1.0").mkdir()
    with pytest.raises(DataError, match=r"expected one folder of labels, found labelTxt-v1\.0, labelTxt-v1\.5"):
        open_dataset(tmp_path, NEEDS)
    (tmp_path / "labelTxt-v1.5").rename(tmp_path / "labelTxt")
    assert open_dataset(tmp_path, NEEDS).format == "dota"


def test_a_test_split_needs_no_labels(tmp_path):
    dota(tmp_path, {"train": {"a": CAR}, "val": {"v": CAR}, "test": {"t": None}})
    data = read_dataset(tmp_path, NEEDS)
    assert set(data.splits) == {"train", "val", "test"}
    assert codes(data.splits["test"].findings) == {"label-missing": 1, "labels-none": 1}


@pytest.mark.parametrize("other", ["train", "val"])
def test_a_folder_of_labels_of_another_name_is_refused(other, tmp_path):
    dota(tmp_path, {"train": {"a": CAR}, "val": {"v": CAR}})
    (tmp_path / other / "labelTxt").rename(tmp_path / other / "text")
    (tmp_path / other / "labelTxt").mkdir()
    with pytest.raises(DataError, match=rf"^{other}: 1 split.*labels-lost.*looked in \S*{other}/labelTxt\)"):
        open_dataset(tmp_path, NEEDS)


def test_detection_reads_the_boxes_around(tmp_path):
    index = open_dataset(dota(tmp_path, {"train": {"a": row([20, 10, 30, 20, 20, 30, 10, 20])}, "val": {"v": CAR}})).splits["train"]
    assert boxes(index, 0) == [[10, 10, 30, 30]]
    assert set(index.instances(0).shapes) == {"boxes"}
    with pytest.raises(UsageError, match="DOTA reader delivers boxes, rboxes, not keypoints"):
        open_dataset(tmp_path, ("boxes", "keypoints"))


@pytest.mark.parametrize(("break_it", "match"), [
    (lambda root: (root / "train").rename(root / "x"), "expected the split 'train', found val"),
    (lambda root: [path.unlink() for path in (root / "train/images").iterdir()], "split 'train' is empty"),
    (lambda root: [text(path, "") for path in root.rglob("*.txt")], "expected objects in"),
    (lambda root: text(root / "train/labelTxt/a.txt", "1 2 3 Car\n4 5 6 Car"), "not one label row could be used"),
])  # fmt: skip
def test_what_cannot_be_used_stops_with_a_sentence(tmp_path, break_it, match):
    dota(tmp_path, {"train": {"a": CAR}, "val": {"v": CAR}})
    break_it(tmp_path)
    with pytest.raises(DataError, match=match):
        open_dataset(tmp_path, NEEDS)


def test_pictures_and_labels_without_a_split(tmp_path):
    picture(tmp_path / "images/a.png")
    text(tmp_path / "labelTxt/a.txt", CAR)
    with pytest.raises(DataError, match="expected train/images and train/labelTxt"):
        open_dataset(tmp_path, NEEDS)


def test_hostile_rows_never_raise(tmp_path):
    generator = torch.Generator().manual_seed(0)
    junk = [bytes(torch.randint(1, 255, (60,), generator=generator).tolist()) for _ in range(40)]
    junk += [b"1e999 " * 8 + b"Car 0", b"9" * 5000 + b" 1 1 1 1 1 1 1 Car 0", b"1 " * 10_000]
    root = dota(tmp_path, {"train": {"a": b"\n".join(junk) + b"\n" + CAR.encode()}, "val": {"v": CAR}})
    text(root / "classes.txt", "Car\n")
    found = read_dataset(root, NEEDS).splits["train"]
    assert len(found.instances(0)) == 1
    assert sum(codes(found.findings).values()) >= 40

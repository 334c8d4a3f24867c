"""Label files whose names differ from those of their pictures in capitals: read, and said."""

import pytest

from pellucid.data import open_dataset
from pellucid.data.convert import convert
from pellucid.data.readers import read_dataset
from pellucid.data.repair import repair
from pellucid.errors import PellucidWarning

from .make import boxes, codes, labelme, picture, text, voc, voc_object, yolo
from .test_dota import dota

ROW, OTHER = "0 .5 .5 .5 .5\n", "1 .5 .5 .1 .1\n"


def found(index):
    return {finding.code: finding.places for finding in index.findings}


@pytest.mark.parametrize("folder", ["labels", "images"])
def test_a_yolo_label_in_capitals_is_read(folder, tmp_path):
    source = yolo(tmp_path, {"train": {"a": "", "b": None, "c": None}, "val": {"v": ""}})
    text(tmp_path / folder / "train/B.TXT", ROW)
    text(tmp_path / folder / "train/c.TXT", OTHER)
    with pytest.warns(PellucidWarning, match=r"1 image\(s\) have a label file whose name differs from theirs in capitals; used .*B\.TXT"):
        train = open_dataset(source).splits["train"]
    assert train.labels.tolist() == [0, 1]
    assert [train.path(row).name for row in train.image_rows()] == ["b.jpg", "c.jpg"]
    assert codes(train.findings) == {"label-spelled": 1} | ({"labels-beside": 2} if folder == "images" else {})
    assert found(train)["label-spelled"] == (f"{tmp_path}/images/train/b.jpg: B.TXT",)
    assert ("label-spelled", "named as its picture") in [(change.code, done) for change, done in repair(source, tmp_path / "new").changes]
    assert (tmp_path / "new/labels/train/b.txt").read_text().split() == ROW.replace(".", "0.").split()


def test_of_two_yolo_labels_the_one_that_counts_is_said(tmp_path):
    source = yolo(tmp_path, {"train": {"b": ROW, "c": None}, "val": {"v": ""}})
    for name in ("B.TXT", "b.TXT", "C.txt", "C.TXT"):
        text(tmp_path / "labels/train" / name, OTHER)
    train = read_dataset(source).splits["train"]
    assert train.labels.tolist() == [0, 1]
    assert codes(train.findings) == {"label-cases": 2, "label-spelled": 1}
    places = [place.removeprefix(f"{tmp_path}/images/train/") for place in found(train)["label-cases"]]
    assert places == ["b.jpg: b.txt is used, not b.TXT, B.TXT", "c.jpg: C.txt is used, not C.TXT"]


def test_pictures_that_differ_in_capitals_have_their_own_labels_alone(tmp_path):
    source = yolo(tmp_path, {"train": {"b": ROW, "B": None, "cC": None, "Cc": None}, "val": {"v": ""}})
    text(tmp_path / "labels/train/CC.TXT", OTHER)
    train = read_dataset(source).splits["train"]
    assert [train.path(row).name for row in train.image_rows()] == ["b.jpg"]
    assert codes(train.findings) == {"label-missing": 3, "label-without-image": 1}
    assert found(train)["label-without-image"] == (f"{tmp_path}/labels/train/CC.TXT",)


def test_dota_labels_in_capitals(tmp_path):
    row = "10 10 20 10 20 20 10 20 ship 0\n"
    root = dota(tmp_path, {"train": {"a": row}, "val": {"v": row}})
    for name in ("b", "c", "sub/d", "E", "e"):
        picture(root / "train/images" / f"{name}.jpg")
    for name in ("B.TXT", "c.TXT", "C.txt", "D.Txt", "E.txt", "A.TXT"):
        text(root / "train/labelTxt" / name, row + (row if name in ("C.txt", "A.TXT") else ""))
    train = read_dataset(root, ("boxes", "rboxes")).splits["train"]
    owners = sorted(train.path(row).stem for row in train.image_rows())
    assert owners == ["E", "a", "b", "c", "d"], "of two labels the one with the same name counts, whatever its suffix"
    assert codes(train.findings) == {"label-spelled": 2, "label-cases": 2, "label-missing": 1}
    said = sorted(place.rpartition("/")[2] for place in found(train)["label-cases"])
    assert said == ["a.png: a.txt is used, not A.TXT", "c.jpg: c.TXT is used, not C.txt"]
    with pytest.warns(PellucidWarning, match="label-cases"), pytest.warns(PellucidWarning, match="label-spelled"):
        assert convert(root, tmp_path / "new", "dota").objects["train"] == 5
    assert (tmp_path / "new/train/labelTxt/b.txt").read_text().split()[8] == "ship"
    assert boxes(read_dataset(tmp_path / "new").splits["train"], 0) == [[10, 10, 20, 20]]


@pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")
def test_voc_and_labelme_pages_in_capitals(tmp_path):
    one = voc_object("cat", 6, 5, 30, 20)
    root = voc(tmp_path / "voc", {"train": {"a": one, "b": one, "in/C c": one, "d": ""}, "val": {"v": one}})
    pages = root / "Annotations"
    for old, new in {"a.xml": "a.XML", "b.xml": "B.xml", "in/C c.xml": "in/c c.Xml"}.items():
        (pages / old).rename(pages / new)
    for name in ("D.xml", "d.XML", "gone.xml", "in/GONE.XML"):
        text(pages / name, f"<annotation>{one * 2}</annotation>")
    text(root / "ImageSets/Main/train.txt", "a 1\nb\nin/C c -1\nd\n")
    found = read_dataset(root)
    train = found.splits["train"]
    assert [train.path(row).stem for row in train.image_rows()] == ["a", "b", "C c"]
    assert codes(train.findings) == {"label-spelled": 2, "label-cases": 1}
    assert codes(found.findings) == {"label-without-image": 2}
    assert found.findings[0].places == (f"{pages}/gone.xml", f"{pages}/in/GONE.XML")
    assert [found.places for found in train.findings if found.code == "label-cases"] == [
        (f"{root}/JPEGImages/d.jpg: d.xml is used, not d.XML, D.xml",)
    ]
    assert convert(root, tmp_path / "new", "voc").objects == {"train": 3, "val": 1}
    assert sorted(path.name for path in (tmp_path / "new/Annotations").rglob("*.*")) == ["C c.xml", "a.xml", "b.xml", "d.xml", "v.xml"]
    for side in ("train", "val"):
        page = labelme(tmp_path / "labelme", side, side, [{"label": "cat", "points": [[5, 5], [30, 8], [20, 30]]}])
        page.rename(page.with_suffix(".JSON"))
    assert read_dataset(tmp_path / "labelme").splits["train"].labels.tolist() == [0]

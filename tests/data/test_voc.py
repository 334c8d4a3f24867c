"""The Pascal VOC reader."""

import pytest

from pellucid.data import open_dataset
from pellucid.data.readers import read_dataset
from pellucid.errors import DataError

from .make import boxes, codes, picture, text, voc, voc_object


def test_objects_names_and_difficult(tmp_path):
    train = {"b": voc_object("dog", 1, 2, 11, 12) + voc_object("cat", 0, 0, 60, 40, difficult=1), "a": ""}
    data = open_dataset(voc(tmp_path, {"train": train, "val": {"v": voc_object("ant", 3, 3, 9.5, 9)}}))
    assert data.format == "voc"
    assert data.names == ("ant", "cat", "dog")
    index = data.splits["train"]
    assert [index.path(i).name for i in range(2)] == ["b.jpg", "a.jpg"]
    assert boxes(index, 0) == [[1, 2, 11, 12], [0, 0, 60, 40]]
    assert index.labels.tolist() == [2, 1]
    assert index.ignore.tolist() == [False, True]
    assert boxes(data.splits["val"], 0) == [[3, 3, 9.5, 9]]


def test_challenge_files_count_pixels_from_one(tmp_path):
    rows = {"train": {"a": voc_object("dog", 1, 1, 60, 40)}, "val": {"v": voc_object("dog", 7, 7, 7, 7)}}
    data = open_dataset(voc(tmp_path, rows, database="The VOC2007 Database"))
    assert boxes(data.splits["train"], 0) == [[0, 0, 60, 40]]
    assert boxes(data.splits["val"], 0) == [[6, 6, 7, 7]]


def test_parts_of_a_person_are_no_objects(tmp_path):
    part = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></part>"
    body = voc_object("person", 5, 5, 20, 20).replace("</object>", part + "</object>")
    data = open_dataset(voc(tmp_path, {"train": {"a": body}, "val": {"v": body}}))
    assert data.names == ("person",)
    assert boxes(data.splits["train"], 0) == [[5, 5, 20, 20]]


def test_what_is_left_out_is_counted(tmp_path):
    good = voc_object("dog", 5, 5, 20, 20)
    train = {
        "a": good + voc_object("dog", 5, 5, 5, 20),
        "b": good + voc_object("dog", "x", 1, 2, 3),
        "c": good,
        "d": good,
        "e": good,
        "f": good,
    }
    voc(tmp_path, {"train": train, "val": {"v": good}})
    text(tmp_path / "Annotations/c.xml", "<annotation><object>")
    text(tmp_path / "Annotations/d.xml", '<!DOCTYPE x [<!ENTITY a "b">]><annotation></annotation>')
    (tmp_path / "Annotations/e.xml").unlink()
    (tmp_path / "JPEGImages/f.jpg").unlink()
    picture(tmp_path / "JPEGImages/f.PNG")
    index = read_dataset(tmp_path).splits["train"]
    assert codes(index.findings) == {"degenerate": 1, "object-malformed": 1, "label-unreadable": 2, "label-missing": 1}
    assert [index.path(i).name for i in range(len(index))] == ["a.jpg", "b.jpg", "e.jpg", "f.PNG"]
    assert [len(index.instances(i)) for i in range(4)] == [1, 1, 0, 1]
    with pytest.raises(DataError, match=r"a\.xml: object 2"):
        open_dataset(tmp_path, strict=True)


def test_names_with_blanks_with_and_without_labels_and_flags(tmp_path):
    good = voc_object("dog", 5, 5, 20, 20)
    source = voc(tmp_path, {"train": {"my dog": good, "an empty  street": "", "dog 2": good, "plain": good}, "val": {"v": good}})
    (tmp_path / "Annotations/an empty  street.xml").unlink()
    text(tmp_path / "ImageSets/Main/train.txt", "my dog\nan empty  street -1\ndog 2  1\nplain 1\n")
    index = read_dataset(source).splits["train"]
    assert codes(index.findings) == {"label-missing": 1}
    assert [index.path(i).stem for i in range(len(index))] == ["my dog", "an empty  street", "dog 2", "plain"]
    text(tmp_path / "ImageSets/Main/train.txt", "an empty  street\nmy dog\n")
    assert [index.path(i).stem for index in [read_dataset(source).splits["train"]] for i in range(2)] == ["an empty  street", "my dog"]


def test_a_listed_class_file_fixes_the_order(tmp_path):
    voc(tmp_path, {"train": {"a": voc_object("dog", 1, 1, 5, 5)}, "val": {"v": ""}})
    text(tmp_path / "classes.txt", "zebra\ndog\n")
    assert open_dataset(tmp_path).splits["train"].labels.tolist() == [1]
    text(tmp_path / "classes.txt", "zebra\n")
    with pytest.raises(DataError, match=r"a\.xml: object 1: class 'dog'"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(("break_it", "match"), [
    (lambda root: (root / "ImageSets/Main/val.txt").unlink(), "expected the split 'val', found train"),
    (lambda root: text(root / "ImageSets/Main/train.txt", ""), "split 'train' is empty"),
    (lambda root: text(root / "ImageSets/Main/train.txt", "../../a"), "expected a file name inside"),
    (lambda root: [text(root / f"Annotations/{stem}.xml", "<annotation/>") for stem in "av"], "expected named objects"),
])  # fmt: skip
def test_what_cannot_be_used_stops_with_a_sentence(tmp_path, break_it, match):
    voc(tmp_path, {"train": {"a": voc_object("dog", 1, 1, 5, 5)}, "val": {"v": voc_object("dog", 1, 1, 5, 5)}})
    break_it(tmp_path)
    with pytest.raises(DataError, match=match):
        open_dataset(tmp_path)

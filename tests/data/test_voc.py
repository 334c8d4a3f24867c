"""The Pascal VOC reader."""

import re
import shutil

import numpy as np
import pytest
from PIL import Image

from pellucid.cli import main
from pellucid.data import open_dataset
from pellucid.data.convert import convert
from pellucid.data.readers import base, read_dataset
from pellucid.data.split import split
from pellucid.errors import DataError

from .make import boxes, codes, picture, text, voc, voc_object
from .test_dota import dota

quiet = pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")


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


def test_a_list_without_one_label_is_refused(tmp_path):
    good = voc_object("dog", 5, 5, 20, 20)
    (voc(tmp_path, {"train": {"a": good}, "val": {"v": good}}) / "Annotations/v.xml").unlink()
    with pytest.raises(DataError, match=r"^val: 1 split.*labels-lost.*looked in \S*Annotations"):
        open_dataset(tmp_path)


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


def test_without_lists_all_pictures_are_of_train(tmp_path):
    pages = {f"in/{number}": voc_object("cup", 1, 1, 20, 20) for number in range(10)}
    root = voc(tmp_path / "set", {"train": pages})
    for number in range(10):  # no copies of each other
        noise = np.random.default_rng(number).integers(0, 256, (40, 60, 3), dtype=np.uint8)
        Image.fromarray(noise).save(root / "JPEGImages" / "in" / f"{number}.jpg")
    shutil.rmtree(root / "ImageSets")
    found = open_dataset(root, splits=None)
    assert found.names == ("cup",)
    assert {split: len(index) for split, index in found.splits.items()} == {"train": 10}
    assert [found.splits["train"].path(row).name for row in range(10)] == [f"{number}.jpg" for number in range(10)]
    with pytest.raises(DataError, match="val"):
        open_dataset(root)
    assert main(["data", "split", f"data={root}", f"out={tmp_path / 'dealt'}", "val=0.3"]) == 0
    assert {split: len(index) for split, index in open_dataset(tmp_path / "dealt").splits.items()} == {"train": 7, "val": 3}


def test_words_for_no_are_not_difficult(tmp_path):
    words = ("false", "False", "no", "0.0", " 0 ", "", "1", "true", "yes", "2")
    root = voc(
        tmp_path, {"train": {"a": "".join(voc_object("cat", 1, 1, 9 + i, 9, word) for i, word in enumerate(words))}, "val": {"v": ""}}
    )
    assert read_dataset(root).splits["train"].ignore.tolist() == [False] * 6 + [True] * 4


def test_comments_change_no_value(tmp_path):
    said = voc_object("c<!-- no -->at", "<!-- 1 -->6", 5, "3<!-- ? -->0", 20)
    root = voc(tmp_path, {"train": {"a": said}, "val": {"v": voc_object("cat", 6, 5, 30, 20)}}, "The <!-- old -->VOC2007")
    train = read_dataset(root).splits["train"]
    assert (train.names, boxes(train, 0)) == (("cat",), [[5, 4, 30, 20]])


@quiet
def test_a_copy_keeps_comments_and_a_conversion_counts_them(tmp_path):
    root = voc(tmp_path / "old", {"train": {"a": "<!-- first -->" + voc_object("cat", 6, 5, 30, 20)}, "val": {"v": ""}})
    page = root / "Annotations/a.xml"
    inner = page.read_text().replace("</name>", "</name><!-- sure? -->")
    page.write_text(f'<?xml version="1.0"?>\n<!-- by ü -->\n{inner}<!-- end -->\n')
    report = convert(root, tmp_path / "new", "voc", strict=True)
    assert report.lost == {}
    copy = (tmp_path / "new/Annotations/a.xml").read_text()
    assert sorted(re.findall(r"<!-- (.*?) -->", copy)) == ["by ü", "end", "first", "sure?"]
    assert boxes(read_dataset(tmp_path / "new").splits["train"], 0) == [[6, 5, 30, 20]]
    assert convert(root, tmp_path / "coco", "coco").lost["fields"]["places"] == ["comment: 3", "object/comment: 1"]


@quiet
def test_repeated_parts_of_a_page_are_counted(tmp_path):
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>"
    one = voc_object("cat", 6, 5, 30, 20).replace("</object>", f"{box}</object>") + "<size><width>9</width><height>9</height></size>"
    root = voc(tmp_path / "old", {"train": {"a": one + voc_object("cat", 9, 9, 30, 20)}, "val": {"v": ""}})
    found = convert(root, tmp_path / "coco", "coco").lost["fields"]["places"]
    sides = {f"object/bndbox/{side}: 1" for side in ("xmin", "ymin", "xmax", "ymax")}
    assert set(found) == sides | {"size/width: 1", "size/height: 1"}
    assert convert(root, tmp_path / "new", "voc", strict=True).lost == {}


@quiet
def test_other_lists_and_masks_stay_where_they_fit(tmp_path):
    one = voc_object("cat", 6, 5, 30, 20)
    root = voc(tmp_path / "old", {"train": {"a": one, "in/b": one, "c": one}, "val": {"v": one}})
    for name in ("a", "in/b", "c", "v"):  # pictures that show the same stay together in a split
        Image.fromarray(np.random.default_rng(len(name) + ord(name[-1])).integers(0, 255, (40, 60, 3), np.uint8)).save(
            root / f"JPEGImages/{name}.jpg"
        )
    lists = {"Main/cat_train.txt": "a  1\nin/b -1\n", "Layout/trainval.txt": "a 1\nv 2\n", "Main/train_old.txt": "gone 1\n"}
    masks = ("SegmentationClass/a.png", "SegmentationObject/in/b.png", "SegmentationClass/gone.png")
    for name, content in lists.items():
        text(root / "ImageSets" / name, content)
    for name in masks:
        picture(root / name)
    report = convert(root, tmp_path / "new", "voc")
    kept = [f"ImageSets/{name}" for name in list(lists)[:2]] + list(masks[:2])
    for name in kept:
        assert (tmp_path / "new" / name).read_bytes() == (root / name).read_bytes()
    assert report.lost["dropped"] == {"count": 2, "places": [str(root / "ImageSets/Main/train_old.txt"), str(root / masks[2])]}
    dealt = split(root, tmp_path / "dealt", {"train": 0.5, "val": 0.5}).written
    assert dealt.lost["dropped"]["count"] == 4, "lists say of other splits, masks of the same pictures"
    assert (tmp_path / "dealt" / masks[1]).is_file()
    fields = convert(root, tmp_path / "coco", "coco").lost["fields"]
    assert fields["count"] == 6
    assert set(fields["places"]) == {
        "ImageSets/Main: 2",
        "ImageSets/Layout: 1",
        "SegmentationClass: 2",
        "SegmentationObject/in: 1",
    }


@pytest.mark.parametrize("form", ["voc", "dota"])
def test_what_a_name_may_mean_is_thought_of_once(form, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(base, "did_you_mean", lambda words, known: asked.append(words) or "; did you mean it?")
    if form == "voc":
        root = voc(tmp_path, {"train": {"a": voc_object("cta", 1, 1, 9, 9) * 5}, "val": {"v": ""}})
    else:
        root = dota(tmp_path, {"train": {"a": "10 10 20 10 20 20 10 20 cta 0\n" * 5}, "val": {"v": ""}})
    text(root / "classes.txt", "cat\n")
    (finding,) = [found for found in read_dataset(root).splits["train"].findings if found.code == "class-id"]
    assert finding.count == 5
    assert "did you mean it?" in finding.places[0]
    assert asked == [["cta"]]

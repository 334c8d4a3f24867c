"""Copies of a data set: they lie apart from it and hold what its files say, or the loss is counted."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from pellucid.data import open_dataset
from pellucid.data.convert import convert
from pellucid.data.readers import read_whole
from pellucid.data.repair import repair
from pellucid.data.split import split
from pellucid.errors import DataError, PellucidWarning, UsageError

from .make import boxes, coco, codes, labelme, voc, voc_object, yolo
from .test_convert import coco_set
from .test_dota import dota

pytestmark = pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")
SHARES = {"train": 0.5, "val": 0.5}


@pytest.mark.parametrize("inner", ["images/train/new", "labels/val/new", "images/val/a/b"])
def test_a_copy_never_lies_where_the_data_set_is_read(inner, tmp_path):
    source = yolo(tmp_path / "old", {"train": {"a": "0 .5 .5 .5 .5\n", "b": ""}, "val": {"v": "0 .5 .5 .5 .5\n"}})
    before = sorted(tmp_path.rglob("*"))
    (tmp_path / "way").symlink_to(tmp_path / "old", target_is_directory=True)
    for out in (tmp_path / "old" / inner, tmp_path / "way" / inner):
        for write in (lambda out: convert(source, out, "coco"), lambda out: repair(source, out), lambda out: split(source, out, SHARES)):
            with pytest.raises(UsageError, match="outside the folders that"):
                write(out)
    (tmp_path / "way").unlink()
    assert sorted(tmp_path.rglob("*")) == before, "nothing was written"
    assert convert(source, tmp_path / "old" / "new", "coco").images == {"train": 2, "val": 1}, "beside images is another place"


@pytest.mark.parametrize("form", ["labelme", "voc", "dota", "coco"])
def test_other_formats_too_are_written_apart(form, tmp_path):
    convert(yolo(tmp_path / "old", {"train": {"a": "0 .5 .5 .5 .5\n"}, "val": {"v": "0 .5 .5 .5 .5\n"}}), tmp_path / "set", form)
    inner = {"labelme": "test/new", "voc": "JPEGImages/new", "dota": "val/labelTxt/new", "coco": "images/train/new"}[form]
    with pytest.raises(UsageError, match="outside the folders that"):
        convert(tmp_path / "set", tmp_path / "set" / inner, "yolo", ("boxes",))


def test_annotation_files_that_no_copy_holds_are_counted(tmp_path):
    root = coco_set(tmp_path / "old")
    person = [{"id": 1, "name": "person", "keypoints": ["nose"], "skeleton": []}]
    entry = {"id": 1, "image_id": 5, "category_id": 1, "bbox": [4, 4, 9, 9], "area": 81, "iscrowd": 0, "keypoints": [6, 6, 2]}
    coco(root, "val", [{"id": 5, "file_name": "ü n.jpg", "width": 60, "height": 40}], [entry], person, name="person_keypoints")
    assert codes(read_whole(root).all_findings())["file-beside"] == 1
    with pytest.warns(PellucidWarning, match=r"1 annotation file.*person_keypoints_val\.json: instances_val\.json is read"):
        convert(root, tmp_path / "new", "coco")
    with pytest.raises(DataError, match=r"person_keypoints_val\.json"):
        split(root, tmp_path / "dealt", SHARES, strict=True)
    assert any("person_keypoints_val.json" in place for found, _ in repair(root, tmp_path / "fixed").changes for place in found.places)
    assert "file-beside" not in codes(open_dataset(root, ("boxes",), ("train", "val")).all_findings()), "a task reads what it needs"


WRITE = [lambda old, new: convert(old, new, read_whole(old).format, strict=True), repair]


@pytest.mark.parametrize("write", WRITE, ids=["convert", "repair"])
def test_a_dota_copy_keeps_headings_degrees_and_header_lines(write, tmp_path):
    row = "30 10 30 20 10 20 10 10 ship"  # begins at the upper right, runs clockwise
    lines = ["imagesource:GoogleEarth", "gsd:0.146", f"{row} 2", "8 8 20 8 20 4 8 4 ship 0", f"{row} 1", "1 2 3"]
    kept = lines[:-1] if write is WRITE[0] else [*lines[:4], lines[4]]
    content = "\n".join(kept if write is WRITE[0] else lines) + "\n"
    dota(tmp_path / "old", {"train": {"a": content}, "val": {"v": "1 1 5 1 5 5 1 5 ship 0\n"}})
    write(tmp_path / "old", tmp_path / "new")
    text = (tmp_path / "new/train/labelTxt/a.txt").read_text().replace(".000", "").splitlines()
    expected = kept if write is WRITE[0] else kept[:4]  # the third row repeats the first
    assert text == expected


@pytest.mark.parametrize("to", ["yolo", "dota"])
def test_the_first_corner_stays_where_it_is(to, tmp_path):
    rows = ["0 .5 .25 .5 .5 .25 .5 .25 .25", "0 .9 .9 .5 .9 .5 .6 .85 .55"]  # the second is no rectangle
    yolo(tmp_path / "old", {"train": {"a": "\n".join(rows)}, "val": {"v": rows[0], "w": "0 -.02 .25 -.02 .5 .25 .5 .25 .25"}})
    convert(tmp_path / "old", tmp_path / "new", to, ("boxes", "rboxes"))
    folder = "labels/train" if to == "yolo" else "train/labelTxt"
    found = [line.split() for line in (tmp_path / "new" / folder / "a.txt").read_text().splitlines()]
    corners = np.array([row[1:] if to == "yolo" else row[:8] for row in found], float).reshape(-1, 4, 2)
    corners = corners if to == "yolo" else corners / (60, 40)
    given = np.array([row.split()[1:] for row in rows], float).reshape(-1, 4, 2)
    assert corners[0] == pytest.approx(given[0], abs=1e-4)
    apart = np.linalg.norm((corners[1][:, None] - given[1][None]) * (60, 40), axis=-1)
    assert apart.argmin(1).tolist() == [0, 1, 2, 3], "each corner of the rectangle is nearest to the drawn one of its place"


def coco_pair(root):
    size = {"width": 60, "height": 40}
    image = {**size, "license": 4, "coco_url": "http://x/1", "date_captured": "then"}
    note = {"image_id": 7, "category_id": 3, "bbox": [5, 5, 20, 10], "area": 200, "iscrowd": 0, "attributes": {"a": [1]}, "track_id": 9}
    bad = {**note, "id": 5, "category_id": 3, "bbox": [0, 0, 0, 0]}
    categories = [{"id": 3, "name": "cat", "supercategory": "animal", "colour": "red"}]
    for side, ids in {"train": (70, 777, 12), "val": (900, 777, 901)}.items():
        notes = [{**note, "id": i, "bbox": [5 + k, 5, 20, 10]} for k, i in enumerate(ids)]
        if side == "train":
            notes.insert(1, bad)
        path = coco(root, side, [{"id": 7 + (side == "val"), "file_name": f"{side}.jpg", **image}], notes, categories)
        document = json.loads(path.read_text())
        if side == "val":
            for entry in document["annotations"]:
                entry["image_id"] = 8
        path.write_text(json.dumps({"info": {"year": side}, "licenses": [{"id": 4, "name": side}], **document}))
    return root


def test_a_coco_copy_keeps_ids_and_what_it_does_not_know(tmp_path):
    old, new = coco_pair(tmp_path / "old"), tmp_path / "new"
    assert repair(old, new).written.lost == {}
    for side in ("train", "val"):
        before, after = (json.loads((root / f"annotations/instances_{side}.json").read_text()) for root in (old, new))
        before["annotations"] = [entry for entry in before["annotations"] if entry["id"] != 5]
        assert len(after["annotations"]) == 3
        for found in after["annotations"]:
            found["bbox"] = [round(side) for side in found["bbox"]]
        assert after == before
    with pytest.warns(PellucidWarning) as told:
        split_report = split(old, tmp_path / "dealt", {"train": 1.0})
    document = json.loads((tmp_path / "dealt/annotations/instances_train.json").read_text())
    assert {code: loss["count"] for code, loss in split_report.written.lost.items()} == {"annotation-ids": 1, "dropped": 1}
    assert any("1 dropped: " in str(warning.message) and "instances_val.json: info" in str(warning.message) for warning in told)
    assert sorted(entry["id"] for entry in document["annotations"]) == [12, 70, 777, 900, 901, 902]
    assert [entry["name"] for entry in document["licenses"]] == ["train", "val"]


@pytest.mark.parametrize("write", WRITE, ids=["convert", "repair"])
@pytest.mark.parametrize("database", ["The VOC2007 Database", "mine"])
def test_a_voc_copy_keeps_what_it_does_not_know(database, write, tmp_path):
    part = "<part><name>head</name><bndbox><xmin>8</xmin><ymin>8</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></part>"
    kept = f"<pose>Left</pose><truncated>1</truncated><occluded>1</occluded>{part}</object>"
    cat = voc_object("cat", 6, 5, 30, 20).replace("</object>", kept)
    voc(tmp_path / "old", {"train": {"a": voc_object("dog", 3, 3, 9, 9) + cat, "b": ""}, "val": {"v": cat}}, database)
    write(tmp_path / "old", tmp_path / "new")
    for name in ("a", "v"):
        old, new = (ElementTree.parse(tmp_path / root / f"Annotations/{name}.xml").getroot() for root in ("old", "new"))
        new.remove(new.find("filename"))
        assert told(new) == told(old)
    assert boxes(read_whole(tmp_path / "new").splits["train"], 0) == boxes(read_whole(tmp_path / "old").splits["train"], 0)


def told(element):
    return element.tag, (element.text or "").strip(), [told(child) for child in element]


@pytest.mark.parametrize("write", WRITE, ids=["convert", "repair"])
def test_a_labelme_copy_keeps_flags_and_descriptions(write, tmp_path):
    ring = {
        "label": "cat",
        "points": [[5.0, 5.0], [30.0, 8.0], [20.0, 30.0]],
        "shape_type": "polygon",
        "description": "first",
        "mask": None,
    }
    shapes = [
        {**ring, "group_id": None, "flags": {"torn": True, "difficult": True}},
        {**ring, "group_id": 4, "flags": {"torn": False}, "description": "second"},
        {**ring, "points": [[40.0, 5.0], [50.0, 8.0], [45.0, 30.0]], "group_id": 4, "flags": {}, "description": "its other part"},
        {"label": "eye", "points": [[12.0, 9.0]], "group_id": 4, "shape_type": "point", "flags": {"hidden": True}, "description": "left"},
    ]
    old = labelme(tmp_path / "old", "train", "a", shapes, flags={"night": True}, version="4.0.0", checked="yes")
    labelme(tmp_path / "old", "val", "v", shapes[:1])
    write(tmp_path / "old", tmp_path / "new")
    assert json.loads((tmp_path / "new/train/a.json").read_text()) == json.loads(old.read_text())


def test_parts_that_a_copy_cannot_tell_apart_are_counted(tmp_path):
    ring = {"label": "cat", "points": [[5, 5], [30, 8], [20, 30]], "group_id": 1, "shape_type": "polygon"}
    flat = {**ring, "points": [[5, 5], [6, 6], [7, 7]], "description": "other"}
    for stem in ("train", "val"):
        labelme(tmp_path / "old", stem, stem, [ring, flat])
    assert convert(tmp_path / "old", tmp_path / "new", "labelme").lost["dropped"]["count"] == 2
    with pytest.raises(DataError):
        convert(tmp_path / "old", tmp_path / "more", "labelme", strict=True)


def test_only_copies_hold_where_their_objects_stood(tmp_path):
    root = coco_pair(tmp_path)
    assert "origin" in read_whole(root, copy=True).splits["train"].columns
    assert "origin" not in open_dataset(root, ("boxes",), ("train",)).splits["train"].columns


def test_a_yolo_copy_keeps_the_keys_of_others(tmp_path):
    extra = "license: CC BY 4.0\nnull: nothing\n7: seven\nroboflow: {version: 3, url: 'https://x/ü'}\ndownload: |\n  import os\nnc: 1\n"
    source = yolo(tmp_path / "old", {"train": {"a": "0 .5 .5 .5 .5\n"}, "val": {"v": ""}}, yaml="names: [cat]\n" + extra)
    convert(source, tmp_path / "new", "yolo", ("boxes",), strict=True)
    found = yaml.safe_load((tmp_path / "new/data.yaml").read_text())
    assert {key: found.get(key) for key in ("license", "roboflow", "download")} == {
        "license": "CC BY 4.0",
        "roboflow": {"version": 3, "url": "https://x/ü"},
        "download": "import os\n",
    }
    assert found["names"] == {0: "cat"}
    assert (found[None], found[7]) == ("nothing", "seven")
    assert "None" not in found
    assert read_whole(tmp_path / "new").names == ("cat",)
    convert(source, tmp_path / "coco", "coco", ("boxes",))
    convert(tmp_path / "coco", tmp_path / "back", "yolo", ("boxes",))
    assert "license" not in yaml.safe_load((tmp_path / "back/data.yaml").read_text())


def test_keys_that_are_no_plain_values_are_dropped_and_counted(tmp_path):
    source = yolo(tmp_path / "old", {"train": {"a": ""}, "val": {"v": ""}}, yaml="names: [cat]\nmaker: !!python/name:os.system x\n")
    assert convert(source, tmp_path / "new", "yolo", ("boxes",)).lost["dropped"]["count"] == 1
    with pytest.raises(DataError, match="1 dropped: "):
        convert(source, tmp_path / "more", "yolo", ("boxes",), strict=True)

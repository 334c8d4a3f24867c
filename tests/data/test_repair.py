"""data check fix=OUT: a copy in which what was wrong is gone, and the old data untouched."""

import hashlib

import pytest

from pellucid.data import doctor
from pellucid.data.readers import read_whole
from pellucid.data.repair import REPAIRS, repair
from pellucid.errors import DataError, UsageError

from .make import coco, codes, picture, text, voc, voc_object, yolo

ROW = "0 0.5 0.5 0.5 0.5\n"


def contents(folder):
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


def changes(fixed):
    return {finding.code: finding.count for finding, _ in fixed.changes}


def test_a_yolo_set(tmp_path):
    bad = {"a": ROW + ROW + "foo\n0 .9 .5 .5 .5\n9 .5 .5 .1 .1\n0 nan .5 .1 .1\n", "b": ROW, "c": None}
    source = yolo(tmp_path / "old", {"train": bad, "val": {"v": ROW}})
    text(source, source.read_text().replace("train: images/train", "train: [images/train, images/val]"))
    picture(tmp_path / "old/images/train/e.jpg").write_bytes(b"broken")
    text(tmp_path / "old/labels/train/lost.txt", ROW)
    before = contents(tmp_path / "old")
    assert doctor.check(source).exit_code == 3
    fixed = repair(source, tmp_path / "new")
    assert contents(tmp_path / "old") == before
    assert changes(fixed) == {
        **{"row-fields": 1, "row-number": 1, "class-id": 1, "duplicate": 1, "clipped": 1, "label-missing": 1},
        **{"image-unreadable": 1, "label-without-image": 1, "split-overlap": 1},
    }
    assert fixed.written.images == {"train": 3, "val": 1}
    assert fixed.written.objects == {"train": 3, "val": 1}
    copy = doctor.check(tmp_path / "new")
    assert copy.exit_code == 0
    assert codes(copy.findings) == {"class-absent": 2}
    assert any("a.txt:3" in place for finding, _ in fixed.changes for place in finding.places)
    assert "fixed   train: 1 object(s) reach more than half a pixel over the edge of their image [clipped]: clipped" in fixed.lines()
    assert fixed.to_dict()["changes"][0].keys() == {"code", "split", "count", "places", "done"}
    again = repair(tmp_path / "new", tmp_path / "third")
    assert again.changes == ()
    assert again.lines() == ["fixed   nothing had to be changed"]


def test_other_formats_keep_all_that_they_hold(tmp_path):
    ring, size = [5, 5, 30, 5, 30, 20], {"width": 60, "height": 40}
    notes = [
        {"id": 1, "image_id": 0, "category_id": 2, "segmentation": [ring], "bbox": [5, 5, 25, 15], "area": 187.5, "iscrowd": 0},
        {"id": 2, "image_id": 0, "category_id": 2, "bbox": [50, 30, 30, 20], "area": 600, "iscrowd": 0},
        {"id": 3, "image_id": 9, "category_id": 2, "bbox": [1, 1, 3, 3], "area": 9, "iscrowd": 0},
        {"id": 4, "image_id": 0, "category_id": 2, "bbox": [1, 1, 0, 3], "area": 0, "iscrowd": 0},
    ]
    for split in ("train", "val"):
        coco(tmp_path / "old", split, [{"id": 0, "file_name": f"{split}.jpg", **size}], notes, [{"id": 2, "name": "cat"}])
    fixed = repair(tmp_path / "old", tmp_path / "new")
    assert changes(fixed).keys() == {"object-without-image", "degenerate", "clipped"}
    data = read_whole(tmp_path / "new")
    polygons = data.splits["train"].instances(0).shapes["polygons"]
    assert polygons.area().tolist() == [187.5, 0.0]
    assert not codes(data.all_findings()).keys() & REPAIRS.keys()
    source = voc(
        tmp_path / "voc", {"train": {"a": voc_object("cat", 50, 5, 99, 30), "b": "<object><name>cat</name></object>"}, "val": {"v": ""}}
    )
    assert changes(repair(source, tmp_path / "flat")) == {"clipped": 1, "object-malformed": 1}
    assert doctor.check(tmp_path / "flat").exit_code == 0


def test_what_cannot_be_repaired_is_refused_and_nothing_is_written(tmp_path):
    source = yolo(tmp_path / "old", {"train": {"a": "0 .5\n"}, "val": {"v": ROW}})
    with pytest.raises(DataError, match="expected labels of which some can be kept"):
        repair(source, tmp_path / "new")
    text(tmp_path / "old/labels/train/a.txt", "0 .1 .1 .5 .1 .5 .5\n")
    with pytest.raises(UsageError, match="task: expected one"):
        repair(source, tmp_path / "new")
    with pytest.raises(UsageError, match="new or empty folder"):
        repair(source, tmp_path / "old", ("boxes", "polygons"))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert repair(source, tmp_path / "new", ("boxes",)).written.objects == {"train": 1, "val": 1}


def test_only_exact_repeats_go(tmp_path):
    size, box = {"width": 60, "height": 40}, [5, 5, 20, 10]
    halves = [[5, 5, 25, 5, 25, 15]], [[5, 5, 25, 15, 5, 15]], [[5, 5, 25, 5, 25, 15]]
    notes = [{"id": i, "segmentation": ring, "area": 100, "iscrowd": 0} for i, ring in enumerate(halves, 1)]
    notes += [{"id": 4, "bbox": [30, 5, 20, 10], "area": 200, "iscrowd": 1}, {"id": 5, "bbox": [30, 5, 20, 10], "area": 200, "iscrowd": 0}]
    notes = [{"image_id": 0, "category_id": 1, "bbox": box, **note} for note in notes]
    for split in ("train", "val"):
        coco(tmp_path / "old", split, [{"id": 0, "file_name": f"{split}.jpg", **size}], notes, [{"id": 1, "name": "cat"}])
    fixed = repair(tmp_path / "old", tmp_path / "new")
    assert [found.count for found, _ in fixed.changes if found.code == "duplicate"] == [1, 1]
    index = read_whole(tmp_path / "new").splits["train"]
    assert index.ignore.tolist() == [False, False, True, False]
    masks = index.instances(0).shapes["polygons"].rasterise(40, 60)
    assert (masks[0] != masks[1]).any()

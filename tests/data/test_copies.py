"""Copies of a data set: they lie apart from it and hold what its files say, or the loss is counted."""

import pytest

from pellucid.data import open_dataset
from pellucid.data.convert import convert
from pellucid.data.readers import read_whole
from pellucid.data.repair import repair
from pellucid.data.split import split
from pellucid.errors import DataError, PellucidWarning, UsageError

from .make import coco, codes, yolo
from .test_convert import coco_set

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

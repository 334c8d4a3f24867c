"""Letters that UTF-8 does not hold, and bytes that are none of its letters: written so that they are read again, or refused by name."""

import json

import pytest
import yaml

from pellucid.cli import main
from pellucid.data.convert import convert
from pellucid.data.readers import read_dataset, read_whole
from pellucid.data.repair import repair
from pellucid.errors import DataError

from .make import coco, codes, labelme, text, voc, voc_object
from .test_dota import dota

pytestmark = pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")
HALF = "\ud83d"  # of a letter of two: JSON can say it, UTF-8 cannot
SHAPE = {"label": "cat", "points": [[5.0, 5.0], [30.0, 8.0], [20.0, 30.0]], "shape_type": "polygon", "group_id": None, "flags": {}}
NOTE = {"id": 1, "image_id": 1, "category_id": 0, "bbox": [5, 5, 20, 10], "area": 200, "iscrowd": 0}
CAT = "10 10 20 10 20 20 10 20 cat 0\n"
LATIN = [f"10 10 20 10 20 20 10 20 {name} 0\n".encode("latin-1") for name in ("café", "cafè")]


def coco_pair(root, note, name="cat"):
    for side in ("train", "val"):
        coco(root, side, [{"id": 1, "file_name": f"{side}.jpg", "width": 60, "height": 40}], [note], [{"id": 0, "name": name}])
    return root


def labelme_pair(root, *shapes):
    for side in ("train", "val"):
        labelme(root, side, side, list(shapes))
    return root


WRITE = [lambda old, new: convert(old, new, read_whole(old).format), repair]


@pytest.mark.parametrize("write", WRITE, ids=["convert", "repair"])
@pytest.mark.parametrize("more", [{"description": f"a{HALF}b"}, {f"a{HALF}b": 1}], ids=["value", "key"])
def test_half_a_letter_in_a_copy_is_read_again(more, write, tmp_path):
    write(labelme_pair(tmp_path / "old", {**SHAPE, **more}), tmp_path / "new")
    assert json.loads((tmp_path / "new/val/val.json").read_bytes())["shapes"] == [{**SHAPE, **more}]
    write(coco_pair(tmp_path / "coco", {**NOTE, **more}, HALF), tmp_path / "copy")
    document = json.loads((tmp_path / "copy/annotations/instances_val.json").read_bytes())
    assert (document["annotations"], document["categories"]) == ([{**NOTE, **more}], [{"id": 0, "name": HALF}])


def test_half_a_letter_in_names_of_classes_and_points(tmp_path, capsys):
    old = coco_pair(tmp_path / "coco", NOTE, HALF)
    convert(old, tmp_path / "yolo", "yolo")
    assert yaml.safe_load((tmp_path / "yolo/data.yaml").read_bytes())["names"] == {0: HALF}
    assert read_whole(tmp_path / "yolo").names == (HALF,)
    for to in ("dota", "voc", "labelme"):
        with pytest.raises(DataError, match=rf"expected class names that {to} can hold, got '\\ud83d'; rename it"):
            convert(old, tmp_path / to, to)
    pointed = labelme_pair(tmp_path / "points", SHAPE, {"label": HALF, "points": [[8, 8]], "shape_type": "point"})
    with pytest.raises(DataError, match=r"expected text that keypoints\.txt can hold, got '\\ud83d'; rename it"):
        convert(pointed, tmp_path / "more", "labelme")
    assert not (tmp_path / "more").exists()
    assert main(["data", "check", f"data={old}", f"fix={tmp_path / 'fixed'}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"][0]["name"] == HALF


def test_dota_names_that_are_not_utf8_are_left_out_by_line(tmp_path):
    header, good = "imagesource:Zürich\n".encode("latin-1"), "10 10 20 10 20 20 10 20 chalet ü 0\n".encode()
    root = dota(tmp_path / "old", {"train": {"a": header + b"".join(LATIN) + good}, "val": {"v": good}})
    train = read_dataset(root).splits["train"]
    assert train.names == ("chalet ü",)
    assert codes(train.findings) == {"object-malformed": 2}
    file = root / "train/labelTxt/a.txt"
    assert train.findings[0].places == tuple(rf"{file}:{n}: the class 'caf\udce{c}' is not UTF-8" for n, c in ((2, 9), (3, 8)))
    convert(root, tmp_path / "new", "dota")
    assert (tmp_path / "new/train/labelTxt/a.txt").read_bytes().splitlines()[0] == header.strip(), "a header stays as it is"


LISTS = {
    "classes.txt": [lambda root: dota(root, {side: {"a": CAT} for side in ("train", "val")}), None],
    "labels.txt": [lambda root: labelme_pair(root, SHAPE), ("boxes",)],
    "keypoints.txt": [lambda root: labelme_pair(root, SHAPE), ("boxes", "keypoints")],
    "classes.txt of voc": [lambda root: voc(root, {side: {"a": voc_object("cat", 1, 1, 9, 9)} for side in ("train", "val")}), None],
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_names_that_are_not_utf8_are_refused_by_line(name, tmp_path):
    make, needs = LISTS[name]
    root, file = make(tmp_path), name.split()[0]
    text(tmp_path / file, "cat\ncafé\ncafè\n".encode("latin-1"))
    with pytest.raises(DataError, match=rf"{file}:2: expected a name in UTF-8, got 'caf\\udce9'; save the file as UTF-8"):
        read_dataset(root, needs or ("boxes",))
    text(tmp_path / file, "cat\ncafé\n cat \n\n")
    assert read_dataset(root).splits["train"].names[0] == "cat"


def test_categories_of_a_split_that_is_not_read_are_utf8_too(tmp_path):
    root = coco_pair(tmp_path, NOTE, "café")
    document = json.loads((root / "annotations/instances_val.json").read_text())
    text(root / "annotations/instances_val.json", json.dumps(document, ensure_ascii=False).encode("latin-1"))
    with pytest.raises(DataError, match=r"instances_val\.json: expected JSON"):
        read_dataset(root, ("boxes",), ("train",))
    text(root / "annotations/instances_val.json", json.dumps(document, ensure_ascii=False))
    assert read_dataset(root, ("boxes",), ("train",)).names == ("café",)


@pytest.mark.parametrize("odd", ["40", None, float("nan"), [1, "2"], {}])
def test_points_that_go_on_with_no_number(odd, tmp_path):
    bad = {**SHAPE, "points": [[10, 10], [40, 10], [odd, 40], [10, 40]], "description": "torn"}
    labelme_pair(tmp_path / "old", {**SHAPE, "description": "whole"}, bad)
    found = convert(tmp_path / "old", tmp_path / "new", "coco")
    kept = 4 if odd == "40" else 2
    assert sum(found.objects.values()) == kept, "numbers that are said as text are numbers"
    assert found.lost["fields"]["places"] == [f"shape/description: {kept}"]

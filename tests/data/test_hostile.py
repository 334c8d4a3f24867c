"""Label files that no tool would write: each ends in a finding or an error that names the file, never in another exception."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid.data import doctor
from pellucid.data.readers import read_dataset, read_whole
from pellucid.errors import PellucidError

from .make import coco, labelme, picture, text, voc, voc_object, yolo
from .test_dota import dota

ROW = "0 .5 .5 .5 .5\n"
QUAD = "5 5 30 5 30 20 5 20 ship 0\n"
RING = [[5, 5], [25, 5], [25, 25]]
SHAPE = {"label": "cat", "shape_type": "polygon", "points": RING}
OUTLINES = ("boxes", "polygons")
NEEDS = {"yolo": ("boxes",), "dota": ("boxes", "rboxes"), "voc": ("boxes",), "labelme": OUTLINES, "coco": OUTLINES}


def clean(form, root):
    """A small set of a format -> the label file of its picture `a`."""
    if form == "yolo":
        yolo(root, {"train": {"a": ROW, "b": ROW}, "val": {"v": ROW}})
        return root / "labels/train/a.txt"
    if form == "dota":
        text(dota(root, {"train": {"a": QUAD, "b": QUAD}, "val": {"v": QUAD}}) / "classes.txt", "ship\n")
        return root / "train/labelTxt/a.txt"
    if form == "voc":
        one = voc_object("cat", 5, 5, 20, 20)
        text(voc(root, {"train": {"a": one, "b": one}, "val": {"v": one}}) / "classes.txt", "cat\n")
        return root / "Annotations/a.xml"
    if form == "labelme":
        text(root / "labels.txt", "cat\n")
        for split, stem in (("train", "b"), ("val", "v"), ("train", "a")):
            path = labelme(root, split, stem, [SHAPE])
        labelme(root, "train", "0", [SHAPE])  # the file by which the format is known
        return path
    for split in ("val", "train"):
        images = [{"id": 0, "file_name": f"{split}.jpg", "width": 60, "height": 40}]
        note = {"id": 1, "image_id": 0, "category_id": 1, "bbox": [5, 5, 9, 9], "area": 81, "segmentation": [[5, 5, 14, 5, 14, 14]]}
        path = coco(root, split, images, [note], [{"id": 1, "name": "cat"}])
    return path


ANY = {
    "binary": b"\0\1\2\xff\xfe" * 50,
    "utf-16": "0 .5 .5 .5 .5".encode("utf-16"),
    "deep list": b"[" * 200_000,
    "deep mapping": b'{"shapes":' * 50_000,
    "deep XML": b"<a>" * 100_000,
    "laughs": b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><annotation>&b;</annotation>',
    "many digits": b"9" * 100_000,
    "words": b"the quick brown fox",
}
ODD_POINTS = ([[1e308, -1e308], [5, 5], [9, 9]], [[float("nan"), 1], [5, 5], [9, 3]], [[10**400, 1], [2, 3], [4, 9]], "x", [[]])
ODD_NOTES = (
    {"bbox": [float("nan")] * 4},
    {"bbox": [1e308, 1, 1e308, 5]},
    {"bbox": [0, 0, 10**400, 5]},
    {"segmentation": {"size": [10**6, 10**6], "counts": "1"}},
)
COCO = {"images": [{"id": 0, "file_name": "train.jpg"}], "categories": [{"id": 1, "name": "cat"}]}
BAD_CORNERS = b"<xmin>1e999</xmin><ymin>1</ymin><xmax>5</xmax><ymax>nan</ymax>"
OF_ONE = {
    "yolo": [
        b"0 1e999 .5 .5 .5",
        b"0 nan nan nan nan",
        b"1e300 .5 .5 .5 .5",
        b"99999999999999999999 .5 .5 .5 .5",
        b"0 -1e308 1e308 1e308 1e308",
    ],
    "dota": [b"1e999 5 30 5 30 20 5 20 ship 0", b"nan 5 30 5 30 20 5 20 ship 0", b"1e30 5 30 5 30 20 5 20 ship 0"],
    "voc": [
        b"<annotation><object><name>cat</name><bndbox>" + BAD_CORNERS + b"</bndbox></object></annotation>",
        b"<annotation><size><width>9e9</width></size><object/></annotation>",
    ],
    "labelme": [json.dumps({"imagePath": "a.jpg", "shapes": [{**SHAPE, "points": points}]}).encode() for points in ODD_POINTS],
    "coco": [json.dumps({**COCO, "annotations": [{"image_id": 0, "category_id": 1, **note}]}).encode() for note in ODD_NOTES],
}
CASES = [(form, name, content) for form in NEEDS for name, content in [*ANY.items(), *((str(i), c) for i, c in enumerate(OF_ONE[form]))]]


@pytest.mark.parametrize(("form", "name", "content"), CASES, ids=[f"{form}-{name}" for form, name, _ in CASES])
def test_hostile_content_is_named(form, name, content, tmp_path):
    path = clean(form, tmp_path)
    assert doctor.check(tmp_path, NEEDS[form]).exit_code == 0, "clean before"
    text(path, content)
    report = doctor.check(tmp_path, NEEDS[form])
    assert report.exit_code in (1, 3)
    assert any(path.name in place for finding in report.findings for place in finding.places), [f.sentence for f in report.findings]
    if form != "coco" and report.splits:
        assert report.splits["val"].objects == 1
        assert report.splits["train"].objects >= 1, "the neighbours stay"


@pytest.mark.parametrize("name", ["../secret.jpg", "a/../../secret.jpg", "/etc/passwd", "..\\secret.jpg", "a\0.jpg"])
def test_names_that_leave_the_data_set(name, tmp_path):
    picture(tmp_path / "secret.jpg")
    root = tmp_path / "set"
    path = clean("coco", root)
    text(path, path.read_text().replace('"train.jpg"', json.dumps(name)))
    page = labelme(tmp_path / "lm", "train", "a", [SHAPE], imagePath=name if "\0" in name else f"../{name}".replace("..//", "/"))
    labelme(tmp_path / "lm", "val", "v", [SHAPE])
    page.with_suffix(".jpg").unlink()
    listed = text(clean("voc", tmp_path / "voc").parents[1] / "ImageSets/Main/train.txt", name.removesuffix(".jpg") + "\n")
    for folder, file in ((root, path), (tmp_path / "lm", page), (tmp_path / "voc", listed)):
        report = doctor.check(folder)
        assert report.exit_code == 3, folder
        assert file.name in report.findings[0].sentence
    source = yolo(tmp_path / "y", {"val": {"v": ROW}}, yaml="names: [cat]\ntrain: list.txt\n")
    text(tmp_path / "y/list.txt", name + "\n")
    if not os.path.isabs(name):  # a list may name pictures anywhere by whole paths
        assert doctor.check(source).exit_code == 3


@pytest.mark.parametrize(
    ("form", "folder"), [("yolo", "images/train"), ("dota", "train/images"), ("voc", "JPEGImages"), ("labelme", "train")]
)
def test_links_that_lead_back_up(form, folder, tmp_path):
    clean(form, tmp_path)
    (tmp_path / folder / "loop").symlink_to(tmp_path / folder)
    report = doctor.check(tmp_path, NEEDS[form])
    assert report.exit_code == 3
    assert "link that leads back" in report.findings[0].sentence
    assert "loop" in report.findings[0].sentence


@pytest.mark.parametrize("form", ["yolo", "dota", "voc", "labelme"])
@pytest.mark.parametrize("kind", ["itself", "folder"])
def test_label_files_that_are_none(form, kind, tmp_path):
    path = clean(form, tmp_path)
    path.unlink()
    if kind == "itself":
        path.symlink_to(path)
    else:
        path.mkdir()
    report = doctor.check(tmp_path, NEEDS[form])
    assert report.findings
    assert report.splits["val"].objects == 1
    assert any(path.stem in place for finding in report.findings for place in finding.places)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "name", "counts", "size", "x"]), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "id",
    "file_name",
    "width",
    "height",
    "image_id",
    "category_id",
    "bbox",
    "segmentation",
    "area",
    "iscrowd",
    "keypoints",
    "name",
    "skeleton",
)
ENTRY = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)
TOKENS = st.sampled_from(["0", "5", "30", "nan", "-1e999", "ship", "1", "\n", "'", "imagesource:x", "\t", "é", "9" * 30])
TAGS = st.sampled_from(["annotation", "object", "name", "bndbox", "xmin", "ymin", "xmax", "ymax", "size", "width", "difficult"])
XML = st.recursive(
    st.sampled_from(["cat", "5", "nan", "", "-1e9"]),
    lambda inner: st.tuples(TAGS, st.lists(inner, max_size=3)).map(lambda t: f"<{t[0]}>{''.join(t[1])}</{t[0]}>"),
    max_leaves=12,
)
YAML_KEYS = st.sampled_from(["train", "val", "names", "nc", "path", "kpt_shape", "flip_idx", "train_json"])
YAML = st.binary(max_size=60) | st.dictionaries(YAML_KEYS, JSON).map(lambda content: json.dumps(content).encode())
CONTENT = {
    "yolo": st.binary(max_size=80) | st.lists(TOKENS, max_size=20).map(" ".join).map(str.encode),
    "dota": st.binary(max_size=80) | st.lists(TOKENS, max_size=24).map(" ".join).map(str.encode),
    "voc": st.binary(max_size=80) | XML.map(str.encode),
    "labelme": JSON.map(json.dumps).map(str.encode)
    | st.lists(ENTRY, max_size=3).map(lambda shapes: json.dumps({"imagePath": "a.jpg", "shapes": shapes}).encode()),
    "coco": JSON.map(json.dumps).map(str.encode)
    | st.tuples(*[st.lists(ENTRY, max_size=2)] * 3).map(
        lambda t: json.dumps(
            {
                "images": [{"id": 0, "file_name": "train.jpg"}, *t[0]],
                "annotations": [{"image_id": 0, "category_id": 1, **entry} for entry in t[1]],
                "categories": [{"id": 1}, *t[2]],
            }
        ).encode()
    ),
}


@pytest.mark.parametrize("form", sorted(CONTENT))
def test_whatever_a_label_file_holds(form, tmp_path):
    path = clean(form, tmp_path)
    seen = {"tried": 0, "read": 0, "refused": 0}

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(CONTENT[form])
    def read(content):
        seen["tried"] += 1
        text(path, content)
        for attempt in (lambda: read_dataset(tmp_path, NEEDS[form]), lambda: read_whole(tmp_path)):
            try:
                data = attempt()
            except PellucidError as error:
                seen["refused"] += str(tmp_path) in str(error)
            else:
                seen["read"] += 1
                assert all(len(index) for index in data.splits.values())

    read()
    assert seen["read"] + seen["refused"] == 2 * seen["tried"] >= 50, "every refusal names the file"
    assert seen["read"] > 5 or form == "coco"


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(YAML)
def test_whatever_a_yaml_says(tmp_path, content):
    source = text(tmp_path / "data.yaml", content)
    picture(tmp_path / "images/train/a.jpg")
    with pytest.raises(PellucidError) as caught:
        read_dataset(source)
    assert "data.yaml" in str(caught.value) or str(tmp_path) in str(caught.value)

"""Every finding that the doctor knows is produced by a small data set, with a count and a place that exists."""

import re

import pytest
from PIL import Image

from pellucid.data import doctor
from pellucid.data.findings import CODES, PLACES, Log
from pellucid.data.images import read_image
from pellucid.data.readers import open_dataset, read_dataset
from pellucid.data.readers.place import Canvas, Drawn
from pellucid.errors import DataError, PellucidWarning

from .make import coco, labelme, picture, text, voc, voc_object, yolo
from .test_dota import dota

ROW = "0 .5 .5 .5 .5\n"
QUAD = "0 .1 .1 .5 .1 .5 .5 .1 .5\n"
SEGMENT, POSE, OBB = ("boxes", "polygons"), ("boxes", "keypoints"), ("boxes", "rboxes")
KPT = "names: [cat, dog]\nkpt_shape: [2, 3]\n"
FILES = {"train": {"a": ROW}, "val": {"v": ROW}}
BOX = {"bbox": [5, 5, 20, 20], "area": 400, "iscrowd": 0}
RING = [[5, 5], [25, 5], [25, 25]]


def rows(content, yaml="names: [cat, dog]\n", needs=("boxes",), **options):
    return lambda root: (yolo(root, {"train": {"a": content}, "val": {"v": ROW}}, yaml=yaml, **options), needs)


def changed(change, needs=("boxes",)):
    """A clean YOLO set, then `change(root)`."""

    def build(root):
        source = yolo(root, FILES)
        change(root)
        return source, needs

    return build


def notes(*entries, needs=("boxes",), image=None, category=None):
    """A COCO set whose training picture has these annotations."""

    def build(root):
        kinds = [{"id": 1, "name": "cat", **(category or {})}]
        for split in ("train", "val"):
            listed = [{"id": 0, "file_name": f"{split}.jpg", "width": 60, "height": 40, **(image or {})}]
            own = [{"id": i, "image_id": 0, "category_id": 1, **BOX, **entry} for i, entry in enumerate(entries)]
            coco(root, split, listed, own if split == "train" else [], kinds)
        return root, needs

    return build


def shapes(*given, needs=SEGMENT, **fields):
    def build(root):
        own = [{"label": "cat", "shape_type": "polygon", "points": RING, **shape} for shape in given]
        labelme(root, "train", "a", own, **fields)
        labelme(root, "val", "v", [{"label": "cat", "shape_type": "polygon", "points": RING}])
        return root, needs

    return build


def quads(*lines):
    return lambda root: (dota(root, {"train": {"a": "".join(line + "\n" for line in lines)}, "val": {"v": ""}}), OBB)


def point(name, group):
    return {"label": name, "shape_type": "point", "points": [[7, 7]], "group_id": group}


def two_skeletons(root):
    points = {"keypoints": ["a", "b"], "skeleton": [[0, 9]]}
    kinds = [{"id": 1, "name": "cat", **points}, {"id": 2, "name": "dog", **points, "keypoints": ["c", "d"]}]
    for split in ("train", "val"):
        coco(root, split, [{"id": 0, "file_name": f"{split}.jpg", "width": 60, "height": 40}], [], kinds)
    return root, POSE


def replaced(old, new):
    return lambda root: text(root / "data.yaml", (root / "data.yaml").read_text().replace(old, new))


def broken_page(root):
    source = voc(root, {"train": {"a": "", "b": "<object><name>cat</name>"}, "val": {"v": ""}})
    return text(source / "classes.txt", "cat\n").parent, ("boxes",)


def turned_picture(root):
    built = notes({})(root)
    picture(root / "train/train.jpg", orientation=6)
    return built


def two_pages(root):
    (root / "images/train/a.jpg").unlink()
    first, *rest = (Image.new("RGB", (60, 40), color) for color in ("red", "blue", "green"))
    first.save(root / "images/train/a.tif", save_all=True, append_images=rest)


MAKERS = {
    "unreadable": lambda root: (root / "nothing", ("boxes",)),
    "class-id": rows("9 .5 .5 .1 .1\n"),
    "rows-none": rows(ROW, needs=OBB),
    "image-missing": changed(lambda r: (text(r / "list.txt", "images/train/a.jpg\nno.jpg\n"), replaced("images/train", "list.txt")(r))),
    "image-unreadable": changed(lambda r: text(r / "images/train/b.jpg", "no picture")),
    "image-format": changed(lambda r: text(r / "images/train/b.gif", "GIF")),
    "image-pages": changed(two_pages),
    "image-twice": changed(replaced("images/train", "[images/train, images/train]")),
    "label-unreadable": broken_page,
    "label-without-image": changed(lambda r: text(r / "labels/train/lost.txt", ROW)),
    "label-twice": changed(lambda r: text(r / "images/train/a.txt", ROW)),
    "label-spelled": changed(lambda r: (r / "labels/train/a.txt").rename(r / "labels/train/A.TXT")),
    "label-cases": changed(lambda r: text(r / "labels/train/A.TXT", ROW)),
    "label-shared": changed(lambda r: picture(r / "images/train/a.png")),
    "file-beside": None,  # a task reads the file that it needs: see test_copies
    "labels-beside": changed(lambda r: (r / "labels/train/a.txt").rename(r / "images/train/a.txt")),
    "label-missing": changed(lambda r: picture(r / "images/train/b.jpg")),
    "labels-none": changed(lambda r: (picture(r / "images/test/t.jpg"), replaced("names:", "test: images/test\nnames:")(r))),
    "labels-lost": changed(lambda r: (r / "labels/train/a.txt").unlink()),
    "rows-most": rows(ROW + "0 .5\n" * 2),
    "row-class": rows(ROW + "dog .5 .5 .5 .5\n"),
    "row-fields": rows(ROW + "0 .5\n"),
    "row-box": rows(QUAD + ROW, needs=OBB),
    "row-outline": rows(QUAD + "0 .1 .1 .5 .1 .5 .5\n", needs=OBB),
    "row-points": rows(QUAD + "0 .5 .5 .5 .5 .1 .1 2 .2 .2 2\n", yaml=KPT, needs=SEGMENT),
    "row-polygon": rows(QUAD),
    "rows-mixed": rows(ROW + QUAD),
    "row-number": rows(ROW + "0 nan .5 .5 .5\n"),
    "row-range": rows(ROW + "0 50 50 9 9\n"),
    "object-malformed": notes({"bbox": ["x"]}),
    "object-without-image": notes({"image_id": 8}),
    "object-without-box": notes({"bbox": None}),
    "object-without-polygon": notes({}, needs=SEGMENT),
    "object-without-corners": None,  # rows without corners are row-box or object-malformed before they get there
    "object-far": quads("-9999 5 30 5 30 20 5 20 ship 0"),
    "degenerate": notes({"bbox": [5, 5, 0, 9]}),
    "outside": notes({"bbox": [90, 90, 5, 5]}),
    "clipped": notes({"bbox": [50, 30, 30, 30]}),
    "box-replaced": notes({"bbox": [5, 5, 0, 0], "segmentation": [[5, 5, 25, 5, 25, 25]]}, needs=SEGMENT),
    "part-flat": notes({"segmentation": [[5, 5, 25, 5, 25, 25], [1, 1, 9, 9, 5, 5]]}, needs=SEGMENT),
    "not-rectangle": quads("5 5 30 5 40 30 5 20 ship 0"),
    "area-missing": notes({"area": 0}),
    "visibility": rows("0 .5 .5 .5 .5 .4 .4 7 .6 .6 2\n", yaml=KPT, needs=POSE),
    "point-outside": rows("0 .5 .5 .5 .5 1.4 .4 2 .6 .6 2\n", yaml=KPT, needs=POSE),
    "point-origin": rows("0 .5 .5 .5 .5 0 0 .6 .6\n", yaml="names: [cat, dog]\nkpt_shape: [2, 2]\n", needs=POSE),
    "point-names": two_skeletons,
    "point-owner": shapes({"group_id": 1}, {"group_id": 1, "label": "dog"}, point("eye", 1), needs=POSE),
    "point-twice": shapes({"group_id": 1}, point("eye", 1), point("eye", 1), needs=POSE),
    "skeleton": two_skeletons,
    "points-none": rows("0 .5 .5 .5 .5 0 0 0 0 0 0\n", yaml=KPT, needs=POSE),
    "shape-type": shapes({}, {"shape_type": "line"}),
    "size-mismatch": notes({}, image={"width": 61}),
    "exif-frame": turned_picture,
    "path-guess": changed(replaced("train: images", "train: ../images")),
    "name-spelled": quads("5 5 30 5 30 20 5 20 Ship 0", "5 5 30 5 30 25 5 25 Ship 0", "5 5 30 5 30 22 5 22 ship 0"),
    "name-twice": rows(ROW, yaml="names: [cat, cat]\n"),
    "id-replaced": notes({"image_id": "x"}, image={"id": "x"}),
    "ignored": quads("5 5 30 5 30 20 5 20 ship 1"),
    "tiny": rows("0 .5 .5 .001 .5\n"),
    "duplicate": rows(ROW + ROW),
    "split-overlap": changed(replaced("val: images/val", "val: [images/val, images/train]")),
    "split-missing": changed(replaced("val: images/val\n", "")),
    "class-absent": rows(ROW),
}
MADE = [code for code, build in MAKERS.items() if build]


def test_every_code_has_a_maker():
    assert set(MAKERS) == set(CODES)
    assert len(MADE) == len(CODES) - 2
    for code, (level, sentence) in CODES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
        assert "(s)" in sentence or "(es)" in sentence
        assert level in ("fatal", "error", "warning", "note")


def test_an_object_without_corners_is_left_out_where_they_are_needed():
    log = Log("train")
    assert Canvas((40, 60), log, ("corners",)).place(Drawn((1, 1, 9, 9)), "a.txt:1") is None
    assert [(finding.code, finding.places) for finding in log.findings()] == [("object-without-corners", ("a.txt:1",))]


@pytest.mark.parametrize("code", MADE)
def test_a_data_set_that_has_it(code, tmp_path):
    source, needs = MAKERS[code](tmp_path)
    report = doctor.check(source, needs)
    found = [finding for finding in report.findings if finding.code == code]
    assert found, [finding.sentence for finding in report.findings]
    assert all(finding.count >= len(finding.places) >= 1 for finding in found)
    assert all(len(finding.places) <= PLACES for finding in found)
    level = CODES[code][0]
    assert report.exit_code >= {"fatal": 3, "error": 1, "warning": 1, "note": 0}[level]
    if code.startswith("row-") and needs != POSE and level == "error":
        assert any(re.search(r"labels/train/a\.txt:\d+", place) for place in found[0].places)


@pytest.mark.parametrize("form", ["dota", "voc", "labelme"])
def test_a_name_that_is_nearly_a_class_is_asked_about(form, tmp_path):
    if form == "dota":
        source, needs = quads("5 5 30 5 30 20 5 20 kat 0")(tmp_path)
        text(source / "classes.txt", "cat\n")
    elif form == "voc":
        source, needs = voc(tmp_path, {"train": {"a": voc_object("kat", 5, 5, 20, 20)}, "val": {"v": ""}}), ("boxes",)
        text(source / "classes.txt", "cat\n")
    else:
        source, needs = shapes({"label": "kat"})(tmp_path)
        text(source / "labels.txt", "cat\n")
    (found,) = (finding for finding in doctor.check(source, needs).findings if finding.code == "class-id")
    assert found.places[0].endswith("'kat'; did you mean 'cat' for 'kat'?")


def test_training_warns_of_pages_by_the_same_finding(tmp_path):
    source, _ = MAKERS["image-pages"](tmp_path)
    with pytest.warns(PellucidWarning, match=r"^train: 1 image file\(s\) hold several pages.*\[image-pages\] \(\S*a\.tif: 3 pages\)$"):
        open_dataset(source)
    with pytest.raises(DataError, match="image-pages"):
        open_dataset(source, strict=True)


@pytest.mark.parametrize(("left", "pages"), [(0.99, 3), (0.66, 3), (0.335, 2)], ids=["whole", "third", "second"])
def test_pages_are_told_where_a_later_one_is_cut_off(left, pages, tmp_path):
    source, needs = MAKERS["image-pages"](tmp_path)
    path = tmp_path / "images/train/a.tif"
    content = path.read_bytes()
    path.write_bytes(content[: int(left * len(content))])
    (found,) = [finding for finding in read_dataset(source, needs).all_findings() if finding.code == "image-pages"]
    assert found.places == (f"{path}: {pages} pages",)
    assert read_image(path)[0, 0].tolist() == [255, 0, 0]

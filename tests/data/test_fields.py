"""Fields that one format alone holds: in each pair of formats every one is found in what is written, or counted by its name."""

import json

import numpy as np
import pytest

from pellucid.data.convert import convert
from pellucid.data.readers import read_dataset, read_whole
from pellucid.data.readers.labelme import document_of
from pellucid.data.split import split
from pellucid.errors import DataError, PellucidWarning

from .make import coco, labelme, text, voc, voc_object, yolo
from .test_dota import dota

pytestmark = pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")
FORMATS = ("coco", "yolo", "dota", "voc", "labelme")
SIZE = {"width": 60, "height": 40}


def voc_set(root):
    """Two objects of which one is difficult, and a page that says all that pages say."""
    part = "<part><name>q-part</name><bndbox><xmin>8</xmin><ymin>8</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></part>"
    more = f"<pose>q-pose</pose><truncated>1</truncated><occluded>1</occluded>{part}<colour lang='q-lang'/></object>"
    first = voc_object("cat", 6, 5, 30, 20).replace("</object>", more).replace("</bndbox>", "<angle>q-angle</angle></bndbox>")
    second = voc_object("dog", 6, 25, 30, 35, 1).replace("</object>", "<pose>q-hard</pose></object>")
    head = "<folder>q-folder</folder><owner><name>q-owner</name></owner><segmented>1</segmented><filename>a.jpg</filename>"
    voc(root, {"train": {"a": head + first + second}, "val": {"v": voc_object("cat", 6, 5, 30, 20)}}, "q-base")
    page = root / "Annotations/a.xml"
    page.write_text(page.read_text().replace("<annotation>", "<annotation verified='q-yes'>"))
    return root


def coco_set(root):
    note = {"image_id": 1, "category_id": 3, "bbox": [5, 5, 20, 10], "area": 200, "iscrowd": 0}
    first = {**note, "id": 901, "track_id": "q-track", "attributes": {"hue": "q-hue", "torn": False}, "score": 0, "ignore": 0}
    second = {**note, "id": 2, "bbox": [5, 20, 20, 10], "iscrowd": 1, "segmentation": [[5, 20, 25, 20, 25, 30, 5, 30]], "by": "q-hard"}
    image = {"id": 1, "file_name": "a.jpg", **SIZE, "license": 4, "coco_url": "q-url", "flickr_url": "", "date_captured": None}
    categories = [
        {"id": 3, "name": "cat", "supercategory": "q-animal", "colour": "q-red"},
        {"id": 5, "name": "dog", "supercategory": "none"},
    ]
    head = {"info": {"year": "q-year", "about": ""}, "licenses": [{"id": 4, "name": "q-licence"}], "made": "q-made"}
    path = coco(root, "train", [image], [first, second], categories)
    path.write_text(json.dumps({**head, **json.loads(path.read_text())}))
    coco(root, "val", [{"id": 0, "file_name": "v.jpg", **SIZE}], [{**note, "id": 1, "image_id": 0}], [{"id": 3, "name": "cat"}])
    return root


def labelme_set(root):
    ring = {"label": "cat", "points": [[5, 5], [30, 8], [20, 30]], "shape_type": "polygon", "mask": None}
    other = {"label": "dog", "points": [[40, 5], [50, 8], [45, 30]], "shape_type": "polygon"}
    shapes = [
        {**ring, "group_id": "q-group", "flags": {"q-torn": True, "sharp": False}, "description": "q-words", "score": 0},
        {**other, "group_id": 4, "flags": {"difficult": True, "q-hard": True}, "description": ""},
        {**other, "points": [[52, 5], [58, 8], [55, 30]], "group_id": 4, "flags": {"difficult": True}},
    ]
    labelme(root, "train", "a", shapes, flags={"q-night": True, "day": False}, checked="q-checked", lineColor=None, version="q-version")
    labelme(root, "val", "v", [{**ring, "group_id": None, "flags": {}}])
    return root


def dota_set(root):
    rows = ["30 10 30 20 10 20 10 10 cat 2", "8 30 20 30 20 25 8 25 dog 0"]
    lines = ["imagesource:q-source", "gsd:0.1468", "acquisition dates:null", *rows]
    return dota(root, {"train": {"a": "\n".join(lines)}, "val": {"v": "imagesource:q-other\ngsd:null\n10 10 20 10 20 20 10 20 cat 1\n"}})


def yolo_set(root):
    more = "license: q-licence\nroboflow: {version: q-version, tags: [q-tag, b]}\nempty: {}\nnothing:\nnc: 2\n"
    return yolo(root, {"train": {"a": "1 .5 .5 .5 .5\n"}, "val": {"v": ""}}, yaml="names: [cat, dog]\n" + more)


# of each format: how a set is made, fields that are counted by their names, those of the object that is to be ignored, what says a field
SETS = {
    "voc": (
        voc_set,
        {
            **dict.fromkeys(("@verified", "folder", "owner/name", "segmented", "object/pose", "object/truncated", "object/occluded"), 1),
            **{"source/database": 2, "object/part": 1, "object/colour": 1, "object/bndbox/angle": 1},
        },
        {"object/pose": 1},
        {"object/pose": ("q-pose", "q-hard"), "object/part": ("q-part",), "object/colour": ("q-lang",), "object/bndbox/angle": ("q-angle",)}
        | {"folder": ("q-folder",), "owner/name": ("q-owner",), "source/database": ("q-base",), "@verified": ("q-yes",)},
    ),
    "coco": (
        coco_set,
        {
            **dict.fromkeys(("info/year", "licenses/id", "licenses/name", "made", "image/license", "image/coco_url", "category/colour"), 1),
            **dict.fromkeys(("annotation/id", "annotation/track_id", "annotation/attributes/hue", "annotation/score"), 1),
            "category/supercategory": 1,
        },
        {"annotation/by": 1},
        {
            "annotation/track_id": ("q-track",),
            "annotation/attributes/hue": ("q-hue",),
            "annotation/by": ("q-hard",),
            "annotation/id": ("901",),
        }
        | {"category/supercategory": ("q-animal",), "category/colour": ("q-red",), "image/coco_url": ("q-url",), "info/year": ("q-year",)}
        | {"licenses/name": ("q-licence",), "made": ("q-made",)},
    ),
    "labelme": (
        labelme_set,
        dict.fromkeys(("flags/q-night", "checked", "shape/group_id", "shape/flags/q-torn", "shape/description", "shape/score"), 1),
        {"shape/flags/q-hard": 1},
        {"flags/q-night": ("q-night",), "checked": ("q-checked",), "shape/group_id": ("q-group",), "shape/flags/q-torn": ("q-torn",)}
        | {"shape/description": ("q-words",), "shape/flags/q-hard": ("q-hard",)},
    ),
    "dota": (
        dota_set,
        {"imagesource": 2, "gsd": 1},
        {"difficult 2": 1},
        {"imagesource": ("q-source", "q-other"), "gsd": ("0.1468",), "difficult 2": ("cat 2",)},
    ),
    "yolo": (
        yolo_set,
        {"license": 1, "roboflow/version": 1, "roboflow/tags": 1},
        {},
        {"license": ("q-licence",), "roboflow/version": ("q-version",), "roboflow/tags": ("q-tag",)},
    ),
}


def counted(report):
    """{field: how often} as a report says."""
    return {
        name: int(count) for name, _, count in (place.rpartition(": ") for place in report.lost.get("fields", {"places": []})["places"])
    }


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("old", FORMATS)
def test_every_field_is_found_again_or_counted(old, to, tmp_path):
    make, fields, hard, says = SETS[old]
    source = make(tmp_path / "old")
    before = read_whole(source)
    report = convert(source, tmp_path / "new", to)
    written = "\n".join(p.read_text() for p in (tmp_path / "new").rglob("*") if p.suffix in (".json", ".xml", ".txt", ".yaml"))
    given = "\n".join(p.read_text() for p in (tmp_path / "old").rglob("*") if p.suffix in (".json", ".xml", ".txt", ".yaml"))
    for name, values in says.items():
        for value in values:
            assert value in given
            gone_along = name in hard and to == "yolo"  # with its object, which is counted
            assert (value in written) == (old == to), f"{name} {value}"
            assert old == to or name in counted(report) or gone_along, name
    if old == to:
        assert "fields" not in report.lost
        return
    expected = {name: fields.get(name, 0) + (hard.get(name, 0) if to != "yolo" else 0) for name in fields | hard}
    assert counted(report) == {name: count for name, count in expected.items() if count}
    assert report.lost["fields"]["count"] == sum(expected.values())
    ignored = sum(int(index.ignore.sum()) for index in before.splits.values())
    assert (ignored > 0) == (old != "yolo")
    assert report.lost.get("ignored", {"count": 0})["count"] == (ignored if to == "yolo" else 0)
    outlined = to == "yolo" and old in ("coco", "dota", "labelme")
    after = read_dataset(tmp_path / "new", ("boxes", "polygons" if old != "dota" else "rboxes") if outlined else ("boxes",))
    assert sum(int(index.ignore.sum()) for index in after.splits.values()) == (0 if to == "yolo" else ignored)
    for side, index in before.splits.items():
        kept = ~index.ignore if to == "yolo" else np.ones_like(index.ignore)
        assert [after.names[k] for k in after.splits[side].labels] == [before.names[k] for k in index.labels[kept]]


def test_fields_are_said_and_strict_refuses_them(tmp_path):
    source = voc_set(tmp_path / "old")
    said = (
        r"13 field\(s\) of voc files that coco files do not hold; left out \[fields\] \(source/database: 2; object/pose: 2; .*@verified: 1"
    )
    with pytest.warns(PellucidWarning, match=said):
        convert(source, tmp_path / "new", "coco")
    with pytest.raises(DataError, match=r"expected a format that holds all, got 13 field\(s\) of voc files"):
        convert(source, tmp_path / "more", "coco", strict=True)
    assert not (tmp_path / "more").exists()


def test_what_says_nothing_is_no_field(tmp_path):
    plain = "<pose>Unspecified</pose><truncated>0</truncated><occluded>0</occluded><note> </note></object>"
    one = voc_object("cat", 6, 5, 30, 20).replace("</object>", plain)
    head = "<segmented>0</segmented><folder/>"
    assert convert(voc(tmp_path / "voc", {"train": {"a": head + one}, "val": {"v": one}}), tmp_path / "1", "coco", strict=True).lost == {}
    shape = {"label": "cat", "points": [[5, 5], [30, 8], [20, 30]], "shape_type": "polygon", "group_id": None}
    for stem in ("train", "val"):
        more = {"flags": {"a": False}, "version": "4", "lineColor": None}
        labelme(tmp_path / "me", stem, stem, [{**shape, "flags": {"b": False}, "description": "", "mask": None}], **more)
    assert convert(tmp_path / "me", tmp_path / "2", "coco", strict=True).lost == {}
    back = convert(tmp_path / "2", tmp_path / "3", "labelme", strict=True)
    assert back.lost == {}
    assert convert(tmp_path / "3", tmp_path / "4", "coco", strict=True).lost == {}, "what is written here says nothing more"


def test_names_without_end_are_counted_together(tmp_path):
    note = {"image_id": 1, "category_id": 3, "bbox": [5, 5, 20, 10], "area": 200, "iscrowd": 0}
    notes = [{**note, "id": k, f"key\n{k}": 1, "deep": {"a": {"b": {"c": {"d": {}}}}}} for k in range(60)]
    for side in ("train", "val"):
        coco(tmp_path / "old", side, [{"id": 1, "file_name": f"{side}.jpg", **SIZE}], notes, [{"id": 3, "name": "cat"}])
    found = convert(tmp_path / "old", tmp_path / "new", "voc").lost["fields"]
    names = {place.rpartition(": ")[0] for place in found["places"]}
    assert found["count"] == 2 * (60 + 60)
    assert len(names) == 51
    assert {"others", "annotation/key 0", "annotation/deep/a/b"} <= names


def test_names_of_points_that_are_not_written_are_counted(tmp_path):
    points = {"keypoints": ["left_eye", "right_eye"], "skeleton": [[1, 2]], "flip_idx": [0, 1]}
    note = {"id": 1, "image_id": 1, "category_id": 3, "bbox": [5, 5, 20, 10], "area": 200, "iscrowd": 0, "num_keypoints": 2}
    for side in ("train", "val"):
        images = [{"id": 0 if side == "val" else 1, "file_name": f"{side}.jpg", **SIZE}]
        notes = [{**note, "keypoints": [8, 8, 2, 12, 8, 2]}] if side == "train" else []
        coco(tmp_path / "old", side, images, notes, [{"id": 0, "name": "cat"}, {"id": 3, "name": "dog", **points}])
    lost = convert(tmp_path / "old", tmp_path / "voc", "voc").lost
    assert counted(convert(tmp_path / "old", tmp_path / "dota", "dota")) == counted_points(lost)
    me = convert(tmp_path / "old", tmp_path / "me", "labelme").lost
    assert (me["mirrors"]["count"], me["skeleton"]["count"]) == (2, 1), "names alone would say that the eyes change sides"
    assert "mirrors" not in convert(tmp_path / "old", tmp_path / "yolo", "yolo", ("boxes", "keypoints")).lost
    again = convert(tmp_path / "yolo", tmp_path / "yolo-voc", "voc")
    assert counted(again) == {"flip_idx": 1, "kpt_names": 1}


def counted_points(lost):
    assert lost["points"]["count"] == 1
    return {"category/keypoints": 2, "category/skeleton": 2, "category/flip_idx": 2}


def test_a_coco_copy_keeps_points_that_no_object_has_and_counts_what_its_yaml_says(tmp_path):
    points = {"keypoints": ["left_eye", "right_eye"], "skeleton": [[1, 2]]}
    note = {"id": 1, "image_id": "x", "category_id": 3, "bbox": [5, 5, 20, 10], "area": 200, "iscrowd": 0}
    for side in ("train", "val"):
        coco(tmp_path / "old", side, [{"id": "x", "file_name": f"{side}.jpg", **SIZE}], [note], [{"id": 3, "name": "dog", **points}])
    keys = "".join(f"{side}: {side}\n{side}_json: annotations/instances_{side}.json\n" for side in ("train", "val"))
    source = text(tmp_path / "old/data.yaml", keys + "maker: me\n")
    lost = convert(source, tmp_path / "new", "coco", ("boxes", "keypoints")).lost
    assert lost["dropped"]["count"] == 3
    assert {place.rpartition("/")[2] for place in lost["dropped"]["places"]} == {
        "data.yaml: maker",
        "train.jpg: image id 'x'",
        "val.jpg: image id 'x'",
    }
    for side in ("train", "val"):
        document = json.loads((tmp_path / f"new/annotations/instances_{side}.json").read_text())
        assert document["categories"] == [{"id": 3, "name": "dog", **points}]
    assert counted(convert(source, tmp_path / "yolo", "yolo", ("boxes",))) == {"maker": 1, "image/id": 2}


FORMS = [
    {"label": "cat", "points": [[40, 30], [20, 10]], "group_id": None, "shape_type": "rectangle", "flags": {}},
    {"label": "cat", "points": [[30.123456, 20], [30, 30]], "group_id": None, "shape_type": "circle", "flags": {"round": True}},
    {"label": "cat", "points": [[5, 5], [8, 30], [30, 20]], "group_id": None, "shape_type": "polygon", "flags": {}},  # runs back
    {"label": "cat", "points": [[1, 1], [2, 1], [2, 2], [1, 2]], "group_id": None, "shape_type": "rectangle", "flags": {}},
]


def test_a_labelme_copy_keeps_the_forms_of_shapes(tmp_path):
    cut = [
        {"label": "cat", "points": [[50, 20], [50, 32]], "group_id": None, "shape_type": "circle", "flags": {}},
        {"label": "cat", "points": [[50, 20], [70, 30]], "group_id": None, "shape_type": "rectangle", "flags": {}},
    ]
    for stem in ("train", "val"):
        labelme(tmp_path / "old", stem, stem, [*FORMS, *cut] if stem == "train" else FORMS)
    assert convert(tmp_path / "old", tmp_path / "new", "labelme").lost["circles"]["count"] == 1, "the one that reaches over the edge"
    found = {stem: json.loads((tmp_path / f"new/{stem}/{stem}.json").read_text())["shapes"] for stem in ("train", "val")}
    assert found["val"] == FORMS
    assert found["train"][:-2] == FORMS
    assert found["train"][-2]["shape_type"] == "polygon"
    assert (found["train"][-1]["shape_type"], found["train"][-1]["points"]) == ("rectangle", [[50, 20], [60, 30]])
    split(tmp_path / "new", tmp_path / "dealt", {"train": 1.0})
    shapes = [shape for path in (tmp_path / "dealt").rglob("*.json") for shape in json.loads(path.read_text())["shapes"]]
    assert [shape["shape_type"] for shape in shapes].count("circle") == 2
    assert convert(tmp_path / "old", tmp_path / "boxes", "labelme", ("boxes",)).objects == {"train": 6, "val": 4}
    shapes = json.loads((tmp_path / "boxes/val/val.json").read_text())["shapes"]
    assert [shape["shape_type"] for shape in shapes] == ["rectangle"] * 4
    assert shapes[0]["points"] == [[40, 30], [20, 10]]


@pytest.mark.parametrize("to", ["coco", "yolo", "voc"])
def test_circles_and_shapes_without_area_are_counted(to, tmp_path):
    strokes = [
        {"label": "cat", "points": [[5, 5], [9, 9], [12, 5]], "shape_type": kind} for kind in ("line", "linestrip", "mask", "points")
    ]
    for stem in ("train", "val"):
        labelme(tmp_path / "old", stem, stem, FORMS + strokes)
    with pytest.warns(PellucidWarning, match=r"4 shape\(s\) of a type that the task does not use; left out"):
        report = convert(tmp_path / "old", tmp_path / "new", to)
    assert report.lost["outlines" if to == "voc" else "circles"]["count"] == (8 if to == "voc" else 2)
    assert counted(report) == {"shape/flags/round": 2}
    with pytest.raises(DataError, match="shape-type"):
        convert(tmp_path / "old", tmp_path / "more", to, strict=True)


def test_what_a_format_can_hold_of_four_corners_stays_in_their_order(tmp_path):
    row = "30 10 30 20 10 20 10 10 ship 0"  # begins at the upper right, runs clockwise
    dota(tmp_path / "old", {"train": {"a": row}, "val": {"v": row}})
    for middle in ("coco", "labelme", "yolo"):
        assert convert(tmp_path / "old", tmp_path / middle, middle, strict=True).lost == {}
        needs = ("boxes", "rboxes") if middle == "yolo" else None
        assert convert(tmp_path / middle, tmp_path / f"{middle}-dota", "dota", needs, strict=True).lost == {}
        assert (tmp_path / f"{middle}-dota/train/labelTxt/a.txt").read_text().replace(".000", "") == row + "\n"


def test_degrees_and_masks_of_voc(tmp_path):
    one = voc_object("cat", 6, 5, 30, 20, 2)
    root = voc(tmp_path / "old", {"train": {"a": one}, "val": {"v": one}})
    assert convert(root, tmp_path / "copy", "voc", strict=True).lost == {}
    assert "<difficult>2</difficult>" in (tmp_path / "copy/Annotations/a.xml").read_text()
    text(root / "SegmentationClass/a.png", "")
    text(root / "SegmentationObject/in/b.png", "")
    found = counted(convert(root, tmp_path / "coco", "coco"))
    assert found == {"object/difficult": 2, "SegmentationClass": 1, "SegmentationObject/in": 1}
    with pytest.raises(DataError, match=r"1 dropped: .*SegmentationObject.in.b\.png"):
        convert(root, tmp_path / "more", "voc", strict=True)


def test_lists_and_odd_values_of_labelme_stay_in_a_copy(tmp_path):
    ring = {"label": "cat", "points": [[5, 5], [30, 8], [20, 30]], "shape_type": "polygon"}
    shapes = [{**ring, "flags": ["a"], "group_id": 1.5}, {**ring, "flags": {"difficult": "yes"}, "group_id": 0}]
    for stem in ("train", "val"):
        labelme(tmp_path / "old", stem, stem, shapes, flags=["b"])
    lists = {"labels.txt": "__ignore__\n_background_\ncat\ndog\n", "keypoints.txt": "left_eye\nnose\n"}
    for name, lines in lists.items():
        text(tmp_path / "old" / name, lines)
    assert convert(tmp_path / "old", tmp_path / "copy", "labelme", strict=True).lost == {}
    assert json.loads((tmp_path / "copy/val/val.json").read_text())["shapes"] == shapes
    assert {name: (tmp_path / "copy" / name).read_text() for name in lists} == lists
    found = counted(convert(tmp_path / "old", tmp_path / "coco", "coco"))
    assert found == {"flags": 2, "shape/flags": 2, "shape/flags/difficult": 2, "shape/group_id": 4}


def test_elements_without_end_are_no_page(tmp_path):
    one = voc_object("cat", 6, 5, 30, 20)
    root = voc(tmp_path / "old", {"train": {"a": one + "<a>" * 3000 + "</a>" * 3000, "b": one}, "val": {"v": one + "<a><b>c</b></a>"}})
    with pytest.warns(PellucidWarning, match=r"label file\(s\) cannot be read.*a\.xml: elements more than 64 deep"):
        report = convert(root, tmp_path / "new", "voc")
    assert report.images == {"train": 1, "val": 1}


def test_keys_of_a_yaml_that_are_no_plain_values_are_counted(tmp_path):
    source = yolo(tmp_path / "old", {"train": {"a": ""}, "val": {"v": ""}}, yaml="names: [cat]\nmaker: !!python/name:os.system x\n")
    assert counted(convert(source, tmp_path / "new", "voc", ("boxes",))) == {"maker": 1}


def test_a_page_is_read_without_its_points(tmp_path):
    words = 'say \\ "points": [[1, 2]], "points":[] ]}'
    shapes = [
        {**FORMS[0], "description": words},
        {**FORMS[1], "points": [[1e-5, -2.5], [3, 4]]},
        {"points": None, "x": [1]},
        {"points": []},
    ]
    path = labelme(tmp_path, "train", "a", shapes, words=words)
    for indent in (None, 2):
        path.write_text(json.dumps({"points": [[1]], "after": [2], **json.loads(path.read_text())}, indent=indent))
        whole, less = document_of(path), document_of(path, points=False)
        assert [shape["points"] for shape in less["shapes"]] == [[0], [0], None, []]
        assert whole["shapes"][1]["points"] == [[1e-5, -2.5], [3, 4]]
        assert [{**shape, "points": 0} for shape in less["shapes"]] == [{**shape, "points": 0} for shape in whole["shapes"]]
        assert {**less, "shapes": 0, "points": [[1]]} == {**whole, "shapes": 0}
        assert less["points"] == [0], "a page that says points of its own still says some"


def test_points_say_fields_too(tmp_path):
    ring = {"label": "cat", "points": [[5, 5], [30, 8], [20, 30]], "shape_type": "polygon", "group_id": 4}
    eye = {"label": "eye", "points": [[8, 8]], "shape_type": "point", "flags": {"hidden": True, "difficult": True}, "description": "shut"}
    two = [ring, {**eye, "group_id": 4}, {**ring, "group_id": 5}]
    for stem, shapes in {"train": two, "val": [{**ring, "group_id": None}, {**eye, "group_id": None}]}.items():
        labelme(tmp_path / "old", stem, stem, shapes)
    report = convert(tmp_path / "old", tmp_path / "new", "coco")
    assert counted(report) == {"shape/flags/difficult": 2, "shape/description": 2, "shape/group_id": 1}, "4 joins a point to its object"
    assert set(report.lost) == {"fields"}
    points = [json.loads((tmp_path / f"new/annotations/instances_{side}.json").read_text())["annotations"][0] for side in ("train", "val")]
    assert [entry["keypoints"] for entry in points] == [[8, 8, 1]] * 2

"""The LabelMe reader: shapes, groups, classes, places of pictures, hostile input."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid.data import open_dataset
from pellucid.data.readers import read_dataset
from pellucid.errors import DataError, PellucidWarning, UsageError

from .make import boxes, codes, labelme, picture, text

SEGMENT, POSE = ("boxes", "polygons"), ("boxes", "keypoints")
TRIANGLE = [[10, 5], [30, 5], [30, 15]]


def shape(label, points, kind="polygon", group=None, **more):
    return {"label": label, "points": points, "group_id": group, "shape_type": kind, "flags": {}, **more}


def pair(root, shapes, val=(), **fields):
    labelme(root, "train", "a", shapes, **fields)
    labelme(root, "val", "b", list(val))
    return root


def read(root, needs=SEGMENT):
    return read_dataset(root, needs).splits["train"]


def test_polygons_rectangles_and_circles(tmp_path):
    shapes = [shape("dog", TRIANGLE), shape("cat", [[40, 30], [20, 10]], "rectangle"), shape("dog", [[30, 20], [30, 30]], "circle")]
    data = open_dataset(pair(tmp_path, shapes), SEGMENT)
    index = data.splits["train"]
    assert data.format == "labelme"
    assert data.names == ("cat", "dog")
    assert index.labels.tolist() == [1, 0, 1]
    np.testing.assert_allclose(boxes(index, 0), [[10, 5, 30, 15], [20, 10, 40, 30], [20, 10, 40, 30]], atol=1e-3)
    found = index.instances(0).shapes["polygons"]
    assert found.parts(0)[0].tolist() == TRIANGLE
    assert found.area().tolist() == pytest.approx([100, 400, np.pi * 100], rel=2e-3)
    assert len(data.splits["val"].instances(0).shapes["polygons"]) == 0
    assert data.all_findings() == ()
    assert boxes(open_dataset(tmp_path).splits["train"], 0) == boxes(index, 0)


def test_shapes_of_one_group_are_the_parts_of_one_object(tmp_path):
    beside = [[40, 20], [50, 20], [50, 30]]
    shapes = [shape("cat", TRIANGLE, group=1), shape("dog", TRIANGLE, group=1), shape("cat", beside, group=1), shape("cat", beside)]
    index = read(pair(tmp_path, shapes))
    assert index.labels.tolist() == [0, 1, 0]
    assert [len(index.instances(0).shapes["polygons"].parts(i)) for i in range(3)] == [2, 1, 1]
    assert boxes(index, 0)[0] == [10, 5, 50, 30]


def test_points_belong_to_the_object_of_their_group(tmp_path):
    shapes = [
        shape("left_ear", [[12, 6]], "point", 7),
        shape("cat", [[10, 5], [30, 15]], "rectangle", 7),
        shape("cat", [[32, 5], [50, 25]], "rectangle", 8),
        shape("nose", [[40, 20]], "point", 8),
        shape("right_ear", [[45, 8]], "point", 8),
    ]
    index = read(pair(tmp_path, shapes), POSE)
    assert index.names == ("cat",)
    assert index.keypoints.names == ("left_ear", "nose", "right_ear")
    assert index.keypoints.flip == (2, 1, 0)
    assert index.instances(0).shapes["keypoints"].data.tolist() == [
        [[12, 6, 2], [0, 0, 0], [0, 0, 0]],
        [[0, 0, 0], [40, 20, 2], [45, 8, 2]],
    ]
    assert index.findings == ()
    text(tmp_path / "keypoints.txt", "nose\nleft_ear\nright_ear\n")
    assert read(tmp_path, POSE).keypoints.names == ("nose", "left_ear", "right_ear")
    with pytest.warns(PellucidWarning, match=r"3 shape\(s\) of a type that the task does not use.*point 'left_ear'"):
        open_dataset(tmp_path, SEGMENT)


def test_points_of_a_group_of_several_labels_belong_to_none_of_them(tmp_path):
    nose, beside = shape("nose", [[12, 6]], "point", 1), [[40, 20], [50, 20], [50, 30]]
    shapes = [nose, shape("cat", TRIANGLE, group=1), shape("dog", beside, group=1), shape("ape", TRIANGLE, group=2)]
    for shuffled in (shapes, shapes[::-1]):
        index = read(pair(tmp_path, [*shuffled, shape("nose", [[20, 9]], "point", 2)]), POSE)
        points = dict(zip(index.labels.tolist(), index.instances(0).shapes["keypoints"].data.tolist(), strict=True))
        assert points == {0: [[20, 9, 2]], 1: [[0, 0, 0]], 2: [[0, 0, 0]]}
        assert codes(index.findings) == {"point-owner": 1, "points-none": 2}
    with pytest.warns(
        PellucidWarning, match=r"1 keypoint\(s\) whose group id .*a\.json: shape 4: point 'nose', group id 1 of 'dog' and 'cat'"
    ):
        open_dataset(tmp_path, POSE)
    parts = [shape("cat", TRIANGLE, group=1), shape("cat", beside, group=1), nose]
    index = read(pair(tmp_path, parts), POSE)
    assert index.instances(0).shapes["keypoints"].data.tolist() == [[[12, 6, 2]]]
    assert index.findings == ()


def test_of_two_points_of_one_name_an_object_has_the_first(tmp_path):
    shapes = [shape("cat", TRIANGLE, group=1), shape("nose", [[12, 6]], "point", 1), shape("nose", [[20, 9]], "point", 1)]
    index = read(pair(tmp_path, shapes), POSE)
    assert index.instances(0).shapes["keypoints"].data.tolist() == [[[12, 6, 2]]]
    assert codes(index.findings) == {"point-twice": 1}
    assert index.findings[0].places[0].endswith("a.json: shape 3: point 'nose' of 'cat'")


def test_points_without_a_group_belong_to_the_only_object(tmp_path):
    nose = shape("nose", [[12, 6]], "point")
    index = read(pair(tmp_path / "one", [nose, shape("cat", TRIANGLE)]), POSE)
    assert index.instances(0).shapes["keypoints"].data.tolist() == [[[12, 6, 2]]]
    index = read(pair(tmp_path / "two", [nose, shape("cat", TRIANGLE), shape("cat", TRIANGLE)]), POSE)
    assert codes(index.findings) == {"object-malformed": 1, "points-none": 2}
    with pytest.raises(DataError, match="expected shapes of type point"):
        open_dataset(pair(tmp_path / "none", [shape("cat", TRIANGLE)]), POSE)


def test_classes_are_the_lines_of_a_list(tmp_path):
    pair(tmp_path, [shape("dog", TRIANGLE)])
    text(tmp_path / "labels.txt", "__ignore__\n_background_\ndog\nape\n")
    data = open_dataset(tmp_path)
    assert data.names == ("dog", "ape")
    text(tmp_path / "labels.txt", "ape\n")
    with pytest.raises(DataError, match=r"class-id.*a\.json: shape 1: label 'dog'"):
        open_dataset(tmp_path)


def test_one_class_map_whichever_splits_are_read(tmp_path):
    pair(tmp_path, [shape("dog", TRIANGLE)], [shape("ape", TRIANGLE)])
    assert open_dataset(tmp_path, splits=("train",)).names == open_dataset(tmp_path, splits=("val",)).names == ("ape", "dog")


def test_pictures_with_and_without_objects(tmp_path):
    pair(tmp_path, [shape("cat", TRIANGLE)])
    labelme(tmp_path, "train", "b", [])
    picture(tmp_path / "train/c.jpg")
    labelme(tmp_path, "train", "sub/d", [shape("cat", TRIANGLE)] * 2, imagePath="d.jpg")
    index = read(tmp_path)
    stems = {index.path(i).stem: len(index.instances(i).shapes["polygons"]) for i in range(len(index))}
    assert stems == {"a": 1, "b": 0, "c": 0, "d": 2}
    assert codes(index.findings) == {"label-missing": 1}


def test_where_pictures_lie(tmp_path):
    labelme(tmp_path, "train/json", "a", [shape("cat", TRIANGLE)], paint=False, imagePath="..\\pictures\\one.jpg")
    picture(tmp_path / "train/pictures/one.jpg")
    labelme(tmp_path, "train/json", "b", [shape("cat", TRIANGLE)], imagePath="C:\\Users\\me\\b.jpg")
    labelme(tmp_path, "train/json", "c", [shape("cat", TRIANGLE)], paint=False)
    labelme(tmp_path, "val", "v", [])
    index = read(tmp_path)
    assert sorted(index.path(i).name for i in range(len(index))) == ["b.jpg", "one.jpg"]
    assert len(index.labels) == 2
    assert codes(index.findings) == {"image-missing": 1, "path-guess": 1}


@pytest.mark.parametrize("path", ["../../../etc/a.jpg", "/etc/a.jpg"])
def test_a_picture_outside_the_data_set_is_refused(tmp_path, path):
    labelme(tmp_path / "set", "val", "v", [shape("cat", TRIANGLE)])
    labelme(tmp_path / "set", "train", "a", [], paint=False, imagePath=path)
    with pytest.raises(DataError, match=r"a\.json: expected a file name inside"):
        open_dataset(tmp_path / "set")


def test_two_files_of_one_picture(tmp_path):
    pair(tmp_path, [shape("cat", TRIANGLE)])
    labelme(tmp_path, "train", "z", [shape("cat", TRIANGLE)], paint=False, imagePath="a.jpg")
    index = read(tmp_path)
    assert codes(index.findings) == {"image-twice": 1}
    assert len(index.labels) == 1


@pytest.mark.parametrize(("bad", "code"), [
    (shape("cat", []), "object-malformed"),
    (shape("cat", None), "object-malformed"),
    (shape("cat", "abc"), "object-malformed"),
    (shape("cat", [[1, 2, 3], [4, 5, 6]]), "object-malformed"),
    (shape("cat", [[1, "x"], [4, 5], [6, 7]]), "object-malformed"),
    (shape("cat", [[1, 2]], "circle"), "object-malformed"),
    (shape("cat", [[1, 2], [3, 4], [5, 6]], "rectangle"), "object-malformed"),
    (shape("cat", [[1, 2], [3, 4]]), "degenerate"),
    (shape("cat", [[1, 2], [3, 4], [5, 6]]), "degenerate"),
    (shape("cat", [[1, 2], [1, 9]], "rectangle"), "degenerate"),
    (shape("cat", [[5, 5], [5, 5]], "circle"), "degenerate"),
    (shape("cat", [[70, 2], [80, 2], [80, 9]]), "outside"),
    (shape("cat", [[50, 2], [80, 2], [80, 9]]), "clipped"),
    (shape("cat", [[5, 5], [1e300, 5]], "circle"), "clipped"),
    (shape("cat", [[1, 2], [float("nan"), 4], [5, 9]]), "row-number"),
    (shape("cat", [[1, 2], [3, 4]], "line"), "shape-type"),
    (shape("cat", [[1, 2], [3, 4]], "linestrip"), "shape-type"),
    (shape("cat", [[1, 2]], "point"), "shape-type"),
    (shape("cat", [[1, 2], [9, 9]], "mask", mask="abc"), "shape-type"),
    ({}, "class-id"),
    (shape("", TRIANGLE), "class-id"),
])  # fmt: skip
def test_bad_shapes_are_counted_and_harm_no_other(tmp_path, bad, code):
    index = read(pair(tmp_path, [bad, shape("cat", TRIANGLE)]))
    assert codes(index.findings) == {code: 1}
    assert "a.json: shape 1" in index.findings[0].places[0]
    assert boxes(index, 0)[-1] == [10, 5, 30, 15]
    assert len(index.labels) == (2 if code == "clipped" else 1)


@pytest.mark.parametrize("content", [
    "{", "[1]", "[" * 100000, '{"shapes": 5, "imagePath": "a.jpg"}', '{"shapes": [5], "imagePath": "a.jpg"}', '{"shapes": []}',
    '{"shapes": [], "imagePath": 5}', b"\0\1",
])  # fmt: skip
def test_a_broken_file_leaves_its_picture_out(tmp_path, content):
    pair(tmp_path, [shape("cat", TRIANGLE)])
    labelme(tmp_path, "train", "b", [])
    text(tmp_path / "train/b.json", content)
    index = read(tmp_path)
    assert [index.path(i).stem for i in range(len(index))] == ["a"]
    assert codes(index.findings) == {"label-unreadable": 1}
    assert "b.json" in index.findings[0].places[0]


def test_sizes_and_turns(tmp_path):
    pair(tmp_path, [shape("cat", TRIANGLE)], imageHeight=400, imageWidth=600)
    with pytest.warns(PellucidWarning, match="size-mismatch"):
        open_dataset(tmp_path)
    pair(tmp_path, [shape("cat", TRIANGLE)])
    picture(tmp_path / "train/a.jpg", orientation=6)
    with pytest.warns(PellucidWarning, match="exif-frame"):
        index = open_dataset(tmp_path, SEGMENT).splits["train"]
    assert boxes(index, 0) == [[25, 10, 35, 30]]
    assert index.instances(0).shapes["polygons"].area().item() == 100


def test_other_folders_and_other_tasks(tmp_path):
    with pytest.raises(UsageError, match="LabelMe reader delivers boxes, polygons, keypoints, not rboxes"):
        open_dataset(pair(tmp_path, [shape("cat", TRIANGLE)]), ("boxes", "rboxes"))
    with pytest.raises(DataError, match="expected named shapes"):
        open_dataset(pair(tmp_path / "bare", []))
    text(tmp_path / "other/train/x.json", json.dumps({"images": []}))
    with pytest.raises(DataError, match="name the right folder"):
        open_dataset(tmp_path / "other")
    (tmp_path / "val/b.json").unlink()
    with pytest.raises(DataError, match=r"^val: 1 split.*labels-lost"):
        open_dataset(tmp_path)
    (tmp_path / "val/b.jpg").unlink()
    with pytest.raises(DataError, match="split 'val' is empty"):
        open_dataset(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.sampled_from(["", "cat", "circle", "point"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["label", "points", "shape_type", "group_id"]), JSON))
def test_whatever_a_shape_holds_the_next_is_read(tmp_path, odd):
    good = [shape("cat", TRIANGLE, group=5), shape("nose", [[12, 6]], "point", 5)]
    pair(tmp_path, [shape("cat", TRIANGLE) | odd, *good])
    text(tmp_path / "labels.txt", "cat\n")
    text(tmp_path / "keypoints.txt", "nose\n")
    for needs in (("boxes",), SEGMENT, POSE):
        index = read(tmp_path, needs)
        assert len(index.labels) in (1, 2)
        assert [10, 5, 30, 15] in boxes(index, 0)
        assert len(index.labels) == 2 or sum(finding.count for finding in index.findings) >= 1 or odd.get("group_id") == 5

"""YOLO rows of polygons, keypoints and rotated boxes: the task says how a row is read, never the number of its fields."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from pellucid.data import open_dataset, read_image
from pellucid.data.readers import read_dataset
from pellucid.errors import DataError, PellucidWarning

from .make import boxes, codes, text, yolo

BOX = "0 .5 .5 .5 .5\n"
POLYGON = "1 .25 .25 .75 .25 .75 .75\n"  # 15 10, 45 10, 45 30
CORNERS = "0 .5 .25 .75 .25 .75 .75 .5 .75\n"  # 30 10 to 45 30, upright
POSE = "kpt_shape: [2, 3]\nflip_idx: [1, 0]\n"
POINTS = "0 .5 .5 .5 .5 .25 .5 2 .75 .5 1\n"
NEEDS = {"polygons": POLYGON, "keypoints": POINTS, "rboxes": CORNERS}


def make(root, train, yaml="", val=""):
    return yolo(root, {"train": train, "val": {"v": val}}, yaml="names: [cat, dog]\n" + yaml)


def read(source, kind, **options):
    return read_dataset(source, ("boxes", kind) if kind != "boxes" else ("boxes",), **options).splits["train"]


def test_polygons(tmp_path):
    index = read(make(tmp_path, {"a": POLYGON + "0 0 0 1 0 1 1 0 1\n"}), "polygons")
    shapes = index.instances(0).shapes
    assert boxes(index, 0) == [[15, 10, 45, 30], [0, 0, 60, 40]]
    assert shapes["polygons"].parts(0)[0].tolist() == [[15, 10], [45, 10], [45, 30]]
    assert index.instances(0).labels.tolist() == [1, 0]
    assert index.columns["area"].values.tolist() == [300, 2400]
    assert index.findings == ()


def test_keypoints(tmp_path):
    index = read(make(tmp_path, {"a": POINTS + "1 .5 .5 .2 .2 0 0 0 .5 .5 2\n"}, POSE), "keypoints")
    points = index.instances(0).shapes["keypoints"]
    assert points.data.tolist() == [[[15, 20, 2], [45, 20, 1]], [[0, 0, 0], [30, 20, 2]]]
    assert points.flip == (1, 0)
    assert boxes(index, 0) == [[15, 10, 45, 30], [24, 16, 36, 24]]
    assert index.keypoints.sigmas == (0.5, 0.5)
    assert index.findings == ()


def test_points_without_visibility_count_but_for_those_at_the_corner(tmp_path):
    index = read(make(tmp_path, {"a": "0 .5 .5 .5 .5 .25 .5 0 0\n"}, "kpt_shape: [2, 2]\n"), "keypoints")
    assert index.instances(0).shapes["keypoints"].data.tolist() == [[[15, 20, 2], [0, 0, 0]]]
    assert index.keypoints.dims == 2
    assert index.keypoints.flip is None
    assert codes(index.findings) == {"point-origin": 1}


def test_rotated_boxes(tmp_path):
    turned = "1 " + " ".join(f"{v:.6f}" for v in (np.array([[20, 10], [30, 20], [25, 25], [15, 15]]) / (60, 40)).reshape(-1))
    index = read(make(tmp_path, {"a": CORNERS + turned}), "rboxes")
    upright, tilted = index.instances(0).shapes["rboxes"].data
    torch.testing.assert_close(upright, torch.tensor([37.5, 20, 20, 15, math.pi / 2]), atol=1e-4, rtol=0)
    torch.testing.assert_close(tilted, torch.tensor([22.5, 17.5, 200**0.5, 50**0.5, math.pi / 4]), atol=1e-3, rtol=0)
    np.testing.assert_allclose(boxes(index, 0), [[30, 10, 45, 30], [15, 10, 30, 25]], atol=1e-3)
    assert index.findings == ()


def test_a_rotated_box_over_the_edge_is_not_cut(tmp_path):
    over = "0 " + " ".join(f"{v:.6f}" for v in (np.array([[-5, 10], [5, 0], [12, 7], [2, 17]]) / (60, 40)).reshape(-1))
    index = read(make(tmp_path, {"a": over}), "rboxes")
    torch.testing.assert_close(index.instances(0).shapes["rboxes"].bounds()[0], torch.tensor([-5.0, 0, 12, 17]), atol=1e-3, rtol=0)
    assert boxes(index, 0)[0][0] == 0
    assert index.findings == ()


@pytest.mark.parametrize("kind", NEEDS)
def test_one_row_with_a_box_is_named_and_the_others_stay(tmp_path, kind):
    train = {f"{i}": NEEDS[kind] * 2 for i in range(10)}
    train["box"] = BOX + NEEDS[kind]
    source = make(tmp_path, train, POSE, NEEDS[kind])
    needs = ("boxes", kind)
    with pytest.warns(PellucidWarning, match=r"1 of 22 row\(s\) hold a box alone where the task needs more.*box\.txt:1"):
        data = open_dataset(source, needs)
    train = data.splits["train"]
    assert len(train.columns[kind]) == len(train.labels) == 21
    assert all(len(train.instances(i).shapes[kind]) for i in range(11))
    with pytest.raises(DataError, match=r"box\.txt:1"):
        open_dataset(source, needs, strict=True)


@pytest.mark.parametrize("kind", NEEDS)
def test_a_set_of_boxes_is_not_the_task_at_all(tmp_path, kind):
    with pytest.raises(DataError, match=r"not one label row could be used.*2 rows, the first .*a\.txt:1: 5 fields"):
        open_dataset(make(tmp_path, {"a": BOX, "b": BOX}, POSE, NEEDS[kind]), ("boxes", kind))


@pytest.mark.parametrize("kind", NEEDS)
def test_images_with_and_without_objects(tmp_path, kind):
    train = {"a": NEEDS[kind], "b": "", "c": None, "d": "\n \n", "e": NEEDS[kind] * 3}
    data = read_dataset(make(tmp_path, train, POSE), ("boxes", kind))
    index, val = data.splits["train"], data.splits["val"]
    assert [len(index.instances(i).shapes[kind]) for i in range(5)] == [1, 0, 0, 0, 3]
    assert set(val.columns) == set(index.columns)
    assert len(val.instances(0).shapes[kind]) == 0
    assert codes(data.all_findings()) == {"label-missing": 1}


@pytest.mark.parametrize(("row", "field"), [(POLYGON, [15, 10, 45, 30]), (CORNERS, [30, 10, 45, 30]), (POINTS, [15, 10, 45, 30])])
def test_a_task_about_boxes_reads_every_row(tmp_path, row, field):
    source = make(tmp_path, {"a": row, "b": row}, POSE, row)
    data = open_dataset(source)  # no warning
    index = data.splits["train"]
    assert boxes(index, 0) == [field]
    assert set(index.instances(0).shapes) == {"boxes"}
    assert codes(index.findings) == ({} if row == POINTS else {"row-polygon": 2})


@pytest.mark.parametrize(("kind", "kpt_shape"), [
    ("polygons", [4, 3]), ("polygons", [3, 3]), ("polygons", [2, 2]), ("polygons", [1, 2]), ("rboxes", [2, 2]), ("rboxes", [4, 3]),
])  # fmt: skip
def test_rows_with_keypoints_are_no_outlines(tmp_path, kind, kpt_shape):
    """Of [4, 3] the 16 values could be eight corners, of [2, 2] the four of a rotated box."""
    count, dims = kpt_shape
    pose = "0 .5 .5 .5 .5" + (" .25 .5 2", " .25 .5")[dims == 2] * count
    good = "0 .5 .25 .75 .25 .75 .75 .5 .75 .4 .5\n" if kind == "polygons" else NEEDS[kind]
    yaml, needs = f"kpt_shape: {kpt_shape}\n", ("boxes", kind)
    clash = kpt_shape == [2, 2] and kind == "rboxes"  # four corners have as many fields
    source = make(tmp_path, {"a": f"{pose}\n" if clash else f"{good}{pose}\n{good}", "b": good}, yaml, good)
    if clash:
        with pytest.raises(
            DataError, match=r"not one label row could be used.*2 rows, the first .*a\.txt:1: 9 fields: class cx cy w h and 2 x 2"
        ):
            open_dataset(source, needs)
        return
    index = read(source, kind)
    assert codes(index.findings) == {"row-points": 1}
    assert f"{tmp_path / 'labels/train/a.txt'}:2: {len(pose.split())} fields" in index.findings[0].places[0]
    assert [len(index.instances(i)) for i in range(2)] == [2, 1]
    with pytest.raises(DataError, match=r"not one label row could be used"):
        open_dataset(make(tmp_path, {"a": pose, "b": pose}, yaml, pose), needs)


def test_boxes_and_polygons_side_by_side_are_said(tmp_path):
    with pytest.warns(PellucidWarning, match=r"rows-mixed.*1 of 3 rows hold a polygon"):
        data = open_dataset(make(tmp_path, {"a": BOX + BOX + POLYGON}, val=BOX))
    assert len(data.splits["train"].labels) == 3


@pytest.mark.parametrize(("kind", "row", "code"), [
    ("polygons", "0 .1 .1 .5 .1 .5 .5 .2", "row-fields"),  # an odd number of coordinates
    ("polygons", "0 .1 .1 .5 .5", "row-box"),
    ("polygons", "0 .1 .1 .5 .1 .5", "row-fields"),
    ("polygons", "0 .1 .1 .5 .1 nan .5", "row-number"),
    ("polygons", "0 .1 .1 .5 .1 x .5", "row-number"),
    ("polygons", "0 .1 .1 .5 .1 1e999 .5", "row-range"),
    ("polygons", "0 10 10 50 10 50 50", "row-range"),
    ("polygons", "0 .1 .1 .3 .3 .5 .5", "degenerate"),
    ("polygons", "0 .1 .1 .1 .1 .1 .1", "degenerate"),
    ("polygons", "0 1.1 .1 1.5 .1 1.5 .5", "outside"),
    ("polygons", "0 -.1 .1 .5 .1 .5 .5", "clipped"),
    ("polygons", "7 .1 .1 .5 .1 .5 .5", "class-id"),
    ("keypoints", "0 .5 .5 .5 .5 .2 .2 2", "row-fields"),
    ("keypoints", "0 .5 .5 .5 .5 .2 .2 2 .3 .3", "row-fields"),
    ("keypoints", "0 .5 .5 .5 .5 .2 .2 2 .3 .3 2 .3 .3 2", "row-fields"),
    ("keypoints", "0 .5 .5 .5 nan .2 .2 2 .3 .3 2", "row-number"),
    ("keypoints", "0 .5 .5 .5 .5 nan .2 2 .3 .3 2", "row-number"),
    ("keypoints", "0 .5 .5 .5 .5 nan nan 0 .3 .3 2", ""),
    ("keypoints", "0 .5 .5 .5 .5 .2 .2 nan .3 .3 2", "row-number"),
    ("keypoints", "0 .5 .5 .5 .5 .2 .2 5 .3 .3 2", "visibility"),
    ("keypoints", "0 .5 .5 .5 .5 .2 .2 0.8 .3 .3 2", "visibility"),
    ("keypoints", "0 .5 .5 .5 .5 1.2 .2 2 .3 .3 2", "point-outside"),
    ("keypoints", "0 .5 .5 .5 .5 120 80 2 .3 .3 2", "row-range"),
    ("keypoints", "0 .5 .5 .5 .5 0 0 0 0 0 0", "points-none"),
    ("keypoints", "0 .5 .5 0 .5 .2 .2 2 .3 .3 2", "degenerate"),
    ("rboxes", "0 .5 .25 .75 .25 .75 .75 .5", "row-fields"),
    ("rboxes", "0 .5 .25 .75 .25 .75 .75 .5 .75 .9", "row-fields"),
    ("rboxes", "0 .5 .25 .75 .25 .75 .75 .5 nan", "row-number"),
    ("rboxes", "0 .1 .1 .2 .2 .3 .3 .4 .4", "degenerate"),
    ("rboxes", "0 1.5 .25 1.75 .25 1.75 .75 1.5 .75", "outside"),
    ("rboxes", "0 .5 .25 .75 .25 .9 .75 .5 .75", "not-rectangle"),
    ("rboxes", "0 320 120 400 120 400 200 320 200", "row-range"),
])  # fmt: skip
def test_a_bad_row_is_named_and_harms_no_other(tmp_path, kind, row, code):
    good = NEEDS[kind]
    index = read(make(tmp_path, {"a": good, "b": f"{good}{row}\n{good}", "c": good}, POSE), kind)
    assert codes(index.findings) == ({code: 1} if code else {})
    assert all(str(tmp_path / "labels/train/b.txt:2") in finding.places[0] for finding in index.findings)
    kept = code in ("", "clipped", "visibility", "point-outside", "points-none", "not-rectangle")
    assert [len(index.instances(i)) for i in range(3)] == [1, 3 if kept else 2, 1]


def test_a_row_with_a_million_numbers_is_one_polygon(tmp_path):
    angles = np.linspace(0, 2 * np.pi, 200_000, endpoint=False)
    circle = np.column_stack((0.5 + 0.4 * np.cos(angles), 0.5 + 0.4 * np.sin(angles))).reshape(-1)
    index = read(make(tmp_path, {"a": "0 " + " ".join(f"{v:.7f}" for v in circle) + "\n" + POLYGON}), "polygons")
    assert len(index.labels) == 2
    assert index.columns["area"].values[0] == pytest.approx(np.pi * 24 * 16, rel=1e-3)
    text(tmp_path / "labels/train/a.txt", "0 " + ".5 .5 " * 3_000_000)
    with pytest.raises(DataError, match="label-unreadable"):
        open_dataset(tmp_path, ("boxes", "polygons"), strict=True)


@pytest.mark.parametrize(("yaml", "match"), [
    ("", r"data\.yaml: expected `kpt_shape"),
    ("kpt_shape: 17\n", r"data\.yaml: expected kpt_shape as \[K, 2 or 3\]"),
    ("kpt_shape: [17]\n", r"data\.yaml: expected kpt_shape as \[K, 2 or 3\]"),
    ("kpt_shape: [a, 3]\n", r"data\.yaml: expected kpt_shape as \[K, 2 or 3\]"),
    ("kpt_shape: [2, 4]\n", r"data\.yaml: expected kpt_shape as .* got \[2, 4\]"),
    ("kpt_shape: [0, 3]\n", r"data\.yaml: expected kpt_shape as .* got \[0, 3\]"),
    ("kpt_shape: [1000000000, 3]\n", r"data\.yaml: expected kpt_shape as .* got \[1000000000, 3\]"),
    ("kpt_shape: [3, 3]\nflip_idx: [0, 1]\n", r"data\.yaml: keypoint flip map: expected the numbers 0 to 2"),
    ("kpt_shape: [3, 3]\nflip_idx: [0, 0, 1]\n", r"data\.yaml: keypoint flip map"),
    ("kpt_shape: [3, 3]\nflip_idx: [1, 2, 0]\n", r"data\.yaml: keypoint flip map.*each pair pointing at each other"),
    ("kpt_shape: [3, 3]\nflip_idx: [1, 0, x]\n", r"data\.yaml: expected kpt_shape"),
    ("kpt_shape: [2, 3]\nkpt_names: [a]\n", r"data\.yaml: keypoint names: expected 2, got 1"),
    ("kpt_shape: [2, 3]\nkpt_names: {0: [a, b], 1: [b, a]}\n", r"data\.yaml: expected the same kpt_names for all classes"),
    ("kpt_shape: [2, 3]\nkpt_names: left\n", r"data\.yaml: expected kpt_names as a list"),
    ("kpt_shape: [2, 3]\nkpt_sigmas: [0.1]\n", r"data\.yaml: keypoint sigmas: expected 2 numbers above 0"),
    ("kpt_shape: [2, 3]\nkpt_sigmas: [0.1, 0]\n", r"data\.yaml: keypoint sigmas: expected 2 numbers above 0"),
])  # fmt: skip
def test_a_contradiction_about_the_points_stops(tmp_path, yaml, match):
    with pytest.raises(DataError, match=match):
        open_dataset(make(tmp_path, {"a": POINTS}, yaml, POINTS), ("boxes", "keypoints"))


@pytest.mark.parametrize(("yaml", "flip", "names"), [
    ("kpt_shape: [3, 3]\n", None, ("point 0", "point 1", "point 2")),
    ("kpt_shape: [3, 3]\nkpt_names: [nose, left_eye, right_eye]\n", (0, 2, 1), ("nose", "left_eye", "right_eye")),
    ("kpt_shape: [3, 3]\nkpt_names: {0: [nose, left_eye, right_eye]}\nflip_idx: [0, 1, 2]\n", (0, 1, 2), ("nose", "left_eye", "right_eye")),
    ("kpt_shape: [3, 3]\nflip_idx: [2, 1, 0]\n", (2, 1, 0), ("point 0", "point 1", "point 2")),
])  # fmt: skip
def test_what_a_mirror_does_to_the_points(tmp_path, yaml, flip, names):
    row = "0 .5 .5 .5 .5 .2 .2 2 .3 .3 2 .4 .4 1\n"
    data = open_dataset(make(tmp_path, {"a": row}, yaml + "kpt_sigmas: [.1, .2, .3]\n", row), ("boxes", "keypoints"))
    spec = data.splits["train"].keypoints
    assert (spec.flip, spec.names, spec.sigmas) == (flip, names, (0.1, 0.2, 0.3))
    assert data.task_args()["flip"] == (None if flip is None else list(flip))
    assert data.splits["val"].keypoints == spec


@pytest.mark.parametrize("kind", ["polygons", "keypoints", "rboxes"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_rows_are_of_the_picture_as_it_is_shown(tmp_path, kind, orientation):
    """A rectangle is red in the pixels that are read; the row says where it is seen."""
    height, width = 60, 40
    shown = np.zeros((height, width, 3), np.uint8)
    shown[8:24, 24:36] = (255, 0, 0)
    undo = [None, "FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_90", "TRANSVERSE", "ROTATE_270"][orientation - 1]
    stored = Image.fromarray(shown)
    stored = stored if undo is None else stored.transpose(Image.Transpose[undo])
    ring = np.array([(24, 8), (36, 8), (36, 24), (24, 24)]) / (width, height)
    flat = " ".join(f"{v:.6f}" for v in ring.reshape(-1))
    pose = f"{30 / width} {16 / height} {12 / width} {16 / height} {30 / width} {16 / height} 2 0 0 0"
    source = make(tmp_path, {"a": "0 " + (pose if kind == "keypoints" else flat)}, POSE)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "images/train/a.jpg", exif=exif, quality=95, subsampling=0)
    index = read(source, kind)
    red = read_image(index.path(0))[..., 0] > 128
    assert red.sum() > 150
    shape = index.instances(0).shapes[kind]
    if kind == "polygons":
        assert (shape.rasterise(height, width)[0].numpy() == red).mean() > 0.99
    elif kind == "rboxes":
        torch.testing.assert_close(shape.bounds()[0], torch.tensor([24.0, 8, 36, 24]), atol=1e-3, rtol=0)
        assert red[8:24, 24:36].mean() > 0.97
    else:
        x, y = shape.data[0, 0, :2].int().tolist()
        assert red[y - 3 : y + 3, x - 3 : x + 3].all()
    assert index.findings == ()

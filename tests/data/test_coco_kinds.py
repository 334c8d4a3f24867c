"""COCO polygons, run-length masks, crowds and keypoints; missing keys, thin objects, choice of the file."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from pellucid.data import doctor, open_dataset
from pellucid.data.readers import read_dataset
from pellucid.data.readers.coco_objects import rle_rings
from pellucid.errors import DataError, PellucidWarning
from pellucid.geometry.polygons import Polygons

from .make import EXIF_ORIENTATION, boxes, coco, codes, picture, text

CATEGORIES = [{"id": 90, "name": "brush"}, {"id": 2, "name": "bike"}]
NAMES = ["nose", "left_eye", "right_eye"]
PERSON = [{"id": 1, "name": "person", "keypoints": NAMES, "skeleton": [[1, 2], [1, 3]]}]
SQUARE = [10, 5, 30, 5, 30, 15, 10, 15]
POINTS = [12, 6, 2, 20, 10, 1, 0, 0, 0]
SEGMENT, POSE = ("boxes", "polygons"), ("boxes", "keypoints")
pytestmark = pytest.mark.filterwarnings("ignore:.*__array__ implementation:DeprecationWarning")  # pycocotools under numpy 2


def image(image_id, name=None, **more):
    return {"id": image_id, "file_name": name or f"{image_id}.jpg", "width": 60, "height": 40, **more}


def thing(annotation_id, image_id=1, category_id=2, **more):
    fields = {"bbox": [10, 5, 20, 10], "area": 200, "iscrowd": 0, "segmentation": [SQUARE], **more}
    whole = {"id": annotation_id, "image_id": image_id, "category_id": category_id, **fields}
    return {key: value for key, value in whole.items() if value is not ...}  # `...` leaves a key out


def pair(root, annotations, categories=CATEGORIES, images=None, name="instances"):
    coco(root, "train", images or [image(1)], annotations, categories, name)
    coco(root, "val", [image(1)], [], categories, name)
    return root


def read(root, needs=SEGMENT):
    return read_dataset(root, needs).splits["train"]


def ring_mask():
    """A disc with a hole, cut by the left edge, and a second part."""
    y, x = np.mgrid[:40, :60] + 0.5
    far = np.hypot(x - 12, y - 20)
    return (far < 15) & (far > 6) | (np.hypot(x - 45, y - 30) < 5)


def codes_of(mask):
    """The compressed and the uncompressed run-length code of a mask."""
    flat = mask.T.reshape(-1)
    edges = np.flatnonzero(np.diff(flat, prepend=False, append=~flat[-1:])) if flat.any() else np.array([len(flat)])
    counts = np.diff(np.concatenate(([0], edges))).tolist()
    packed = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": [40, 60], "counts": packed["counts"].decode()}, {"size": [40, 60], "counts": counts}


def test_all_parts_of_a_polygon(tmp_path):
    other = [40, 20, 50, 20, 50, 30]
    index = read(pair(tmp_path, [thing(1, segmentation=[SQUARE, other], bbox=[10, 5, 40, 25], area=250), thing(2)]))
    shape = index.instances(0).shapes["polygons"]
    assert [part.reshape(-1).tolist() for part in shape.parts(0)] == [SQUARE, other]
    assert len(shape.parts(1)) == 1
    assert index.columns["area"].values.tolist() == [250, 200]
    assert boxes(index, 0) == [[10, 5, 50, 30], [10, 5, 30, 15]]
    assert index.findings == ()


@pytest.mark.parametrize("form", [0, 1])
def test_run_length_masks_with_holes_and_parts_come_back_pixel_by_pixel(tmp_path, form):
    mask = ring_mask()
    index = read(pair(tmp_path, [thing(1, segmentation=codes_of(mask)[form], bbox=..., area=...)]))
    shape = index.instances(0).shapes["polygons"]
    assert len(shape.parts(0)) == 3
    assert np.array_equal(shape.rasterise(40, 60)[0].numpy(), mask)
    assert index.columns["area"].values.tolist() == [mask.sum()]
    ys, xs = np.nonzero(mask)
    assert boxes(index, 0) == [[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]]
    assert not index.ignore.any()
    assert index.findings == ()
    assert boxes(read(tmp_path, ("boxes",)), 0) == boxes(index, 0)  # a box from a mask, without the polygons


def test_random_masks_come_back():
    rng = np.random.default_rng(3)
    for density in (0.02, 0.5, 0.97):
        mask = rng.random((40, 60)) < density
        assert 0 < mask.sum() < mask.size
        for code in codes_of(mask):
            again = Polygons.from_rings([rle_rings(code)]).rasterise(40, 60)[0].numpy()
            assert np.array_equal(again, mask)
    assert rle_rings({"size": [40, 60], "counts": [2400]}) == []
    whole = rle_rings({"size": [40, 60], "counts": [0, 2400]})
    assert np.sort(whole[0], 0).tolist() == [[0, 0], [0, 0], [60, 40], [60, 40]]


def test_a_crowd_is_an_ignored_region_of_every_kind(tmp_path):
    crowd = thing(2, iscrowd=1, segmentation=codes_of(ring_mask())[1], bbox=[0, 5, 50, 30])
    bare = thing(3, iscrowd=1, segmentation=..., bbox=[0, 0, 30, 20])
    index = read(pair(tmp_path, [thing(1), crowd, bare]))
    assert index.ignore.tolist() == [False, True, True]
    shape = index.instances(0).shapes["polygons"]
    assert np.array_equal(shape.rasterise(40, 60)[1].numpy(), ring_mask())
    assert shape.bounds()[2].tolist() == [0, 0, 30, 20]
    assert codes(index.findings) == {"ignored": 2}


@pytest.mark.parametrize("keys", [("iscrowd",), ("bbox",), ("area",), ("iscrowd", "bbox", "area"), ("id",)])
@pytest.mark.parametrize("needs", [("boxes",), SEGMENT, POSE])
def test_keys_that_exporters_leave_out(tmp_path, keys, needs):
    annotations = [thing(1, category_id=1, keypoints=POINTS, **dict.fromkeys(keys, ...))]
    assert not set(keys) & set(annotations[0])
    index = read(pair(tmp_path, annotations, PERSON), needs)
    assert boxes(index, 0) == [[10, 5, 30, 15]]
    assert index.ignore.tolist() == [False]
    stated = 0.0 if "area" in keys else 200.0
    assert index.columns["area"].values.tolist() == [200.0 if needs == SEGMENT else stated]
    assert codes(index.findings) == ({"area-missing": 1} if needs == POSE and "area" in keys else {})


@pytest.mark.parametrize("value", [0, -3, None, "x", float("nan"), float("inf"), True, [5]])
def test_an_area_that_cannot_be_used_is_said_and_made(tmp_path, value):
    root = pair(tmp_path, [thing(1, category_id=1, keypoints=POINTS, area=value)], PERSON)
    posed, cut = read(root, POSE), read(root)
    assert codes(posed.findings) == {"area-missing": 1}
    assert posed.columns["area"].values.tolist() == [0]  # not stated: the evaluator takes the mask's or the box's
    assert cut.columns["area"].values.tolist() == [200]
    assert codes(cut.findings) == ({"area-missing": 1} if value is not None else {})


@pytest.mark.parametrize(("fields", "needs", "found"), [
    ({"bbox": [29.65, 38.3, 1.03, 0.0], "area": 0, "segmentation": [[29, 38, 30, 38, 29, 38]]}, SEGMENT, {"degenerate": 1}),
    ({"bbox": [29.65, 38.3, 1.03, 0.0], "area": 0, "segmentation": [[29, 38, 30, 38, 29, 38]]}, ("boxes",), {"degenerate": 1}),
    ({"bbox": [5, 5, 0, 9], "keypoints": POINTS}, POSE, {"degenerate": 1}),
    ({"bbox": [5, 5, 0, 9], "segmentation": [SQUARE]}, SEGMENT, {"box-replaced": 1}),
    ({"bbox": [5, 5, 20, 20], "segmentation": [[5, 5, 25, 25]]}, SEGMENT, {"degenerate": 1}),  # a polygon of two points
    ({"bbox": [5, 5, 20, 20], "segmentation": [[5, 5, 15, 15, 25, 25]]}, SEGMENT, {"degenerate": 1}),  # a line
    ({"bbox": [5, 5, 20, 20], "segmentation": [[5, 5, 15, 15, 25, 25]]}, ("boxes",), {}),
    ({"bbox": ..., "segmentation": [[5, 5, 15, 15, 25, 25]]}, ("boxes",), {"degenerate": 1}),
    ({"segmentation": [[5, 5, 25, 25], SQUARE]}, SEGMENT, {"part-flat": 1}),
    ({"segmentation": [[], SQUARE]}, SEGMENT, {}),
    ({"segmentation": []}, SEGMENT, {"object-without-polygon": 1}),
    ({"segmentation": None}, SEGMENT, {"object-without-polygon": 1}),
    ({"segmentation": ..., "bbox": ...}, SEGMENT, {"object-without-polygon": 1}),
    ({"segmentation": ..., "bbox": ...}, ("boxes",), {"object-without-box": 1}),
    ({"segmentation": {"size": [40, 60], "counts": [2400]}}, SEGMENT, {"object-without-polygon": 1}),  # an empty mask
])  # fmt: skip
def test_thin_and_missing_objects_are_counted(tmp_path, fields, needs, found):
    index = read(pair(tmp_path, [thing(1, category_id=1, **fields), thing(2, category_id=1, keypoints=POINTS)], PERSON), needs)
    assert codes(index.findings) == found
    kept = not found or set(found) & {"box-replaced", "part-flat"}
    assert len(index.labels) == (2 if kept else 1)


@pytest.mark.parametrize("segmentation", [
    5, "abc", [5], [["a", "b", "c"]], [[1, 2, 3, 4, 5, 6, 7]], [[[1, 2], [3, 4], [5, 6]]], [None], {"size": [40, 60]}, {"counts": [1]},
    {"size": [40, 60], "counts": [1, 2]}, {"size": [40, 60], "counts": [-5, 2405]}, {"size": [40, 60], "counts": "zz~!"},
    {"size": [40, 60], "counts": "PPP"}, {"size": [40], "counts": [40]}, {"size": [1000000, 1000000], "counts": [10**12]},
    {"size": [40, 60], "counts": [1e30]}, {"size": ["a", "b"], "counts": []}, {"size": None, "counts": None},
    {"size": [-40, -60], "counts": []},
])  # fmt: skip
def test_malformed_polygons_are_counted_and_harm_no_other(tmp_path, segmentation):
    index = read(pair(tmp_path, [thing(1, segmentation=segmentation), thing(2)]))
    assert codes(index.findings) == {"object-malformed": 1}
    assert len(index.labels) == 1
    assert index.findings[0].places[0].startswith(f"{tmp_path}/annotations/instances_train.json: annotation 1")


def test_polygons_that_are_no_numbers(tmp_path):
    odd = [thing(1, segmentation=[[float("nan"), 5, 30, 5, 30, 15]]), thing(2, segmentation=[[10, 5, 1e400, 5, 30, 15]])]
    index = read(pair(tmp_path, [*odd, thing(3)]))
    assert codes(index.findings) == {"row-number": 2}
    assert len(index.labels) == 1


def test_keypoints(tmp_path):
    annotations = [thing(1, category_id=1, keypoints=POINTS), thing(2, category_id=1), thing(3, category_id=1, keypoints=[0] * 9)]
    data = open_dataset(pair(tmp_path, annotations, PERSON), POSE)
    index = data.splits["train"]
    points = index.instances(0).shapes["keypoints"]
    assert points.data[0].reshape(-1).tolist() == POINTS
    assert not points.data[1:].any()
    assert (points.flip, points.skeleton) == ((0, 2, 1), ((0, 1), (0, 2)))
    assert codes(index.findings) == {"points-none": 2}
    assert data.task_args()["point_names"] == NAMES
    assert len(data.splits["val"].instances(0).shapes["keypoints"]) == 0


@pytest.mark.parametrize(("keypoints", "found"), [
    ([1, 2, 2], "object-malformed"),
    ([*POINTS, 1, 1, 1], "object-malformed"),
    ("abc", "object-malformed"),
    ([["a"]], "object-malformed"),
    ({"x": 1}, "object-malformed"),
    ([12, 6, 4, 20, 10, 1, 0, 0, 0], "visibility"),
    ([12, 66, 2, 20, 10, 1, 0, 0, 0], "point-outside"),
    ([float("nan"), 6, 2, 20, 10, 1, 0, 0, 0], "row-number"),
    ([float("nan"), 6, 0, 20, 10, 1, 0, 0, 0], ""),
])  # fmt: skip
def test_odd_keypoints_are_counted_and_harm_no_other(tmp_path, keypoints, found):
    both = [thing(1, category_id=1, keypoints=keypoints), thing(2, category_id=1, keypoints=POINTS)]
    index = read(pair(tmp_path, both, PERSON), POSE)
    assert codes(index.findings) == ({found: 1} if found else {})
    assert index.instances(0).shapes["keypoints"].data[-1].reshape(-1).tolist() == POINTS


def person(number, name, **more):
    return {"id": number, "name": name, "keypoints": NAMES, **more}


@pytest.mark.parametrize(("categories", "match"), [
    (CATEGORIES, r"expected categories with a list `keypoints` in instances_train\.json"),
    ([person(1, "a"), person(2, "b", keypoints=["x"])], r"category 'b' has 1 keypoints but 'a' has 3; .* split it"),
    ([person(1, "a"), person(2, "b", keypoints=["nose", "right_eye", "tail"])], r"the keypoints of 'b' and 'a' mirror differently"),
    ([person(1, "a", keypoints="nose")], r"category 'a': expected `keypoints` as a list of names, got nose"),
    ([person(1, "a", keypoints=[1, 2])], r"category 'a': expected `keypoints` as a list of names"),
    ([person(1, "a", flip_idx=[1, 2, 0])], r"instances_train\.json: category 'a': keypoint flip map"),
    ([person(1, "a", flip_idx=["x"])], r"category 'a': expected flip_idx and kpt_sigmas as lists of numbers"),
    ([person(1, "a", flip_idx=[float("inf")])], r"category 'a': expected flip_idx and kpt_sigmas as lists of numbers"),
])  # fmt: skip
def test_categories_that_disagree_stop_with_a_sentence(tmp_path, categories, match):
    with pytest.raises(DataError, match=match):
        open_dataset(pair(tmp_path, [], categories), POSE)


@pytest.mark.parametrize(("bone", "shown"), [
    ([4, 1], r"\[4, 1\]"),
    ([0, 1], r"\[0, 1\]"),
    ([-1, 2], r"\[-1, 2\]"),
    ([1, 2, 3], r"\[1, 2, 3\]"),
    (5, "5"),
    (None, "None"),
    (["a", 1], r"\['a', 1\]"),
    ([float("inf"), 1], r"\[inf, 1\]"),
])  # fmt: skip
def test_a_bone_that_joins_no_points_is_not_drawn(tmp_path, bone, shown):
    root = pair(tmp_path, [thing(1, category_id=1, keypoints=POINTS)], [person(1, "person", skeleton=[[1, 2], bone, [3, 1]])])
    match = rf"2 skeleton bone.*instances_train\.json: category 'person': {shown}, but COCO counts the keypoints from 1, here to 3"
    with pytest.warns(PellucidWarning, match=match):  # once in each split's file
        data = open_dataset(root, POSE)
    assert data.splits["train"].keypoints.skeleton == ((0, 1), (2, 0))
    assert codes(data.all_findings()) == {"skeleton": 2}


def test_a_skeleton_that_is_no_list_is_not_drawn(tmp_path):
    data = read_dataset(pair(tmp_path, [thing(1, category_id=1, keypoints=POINTS)], [person(1, "person", skeleton=7)]), POSE)
    assert data.splits["train"].keypoints.skeleton == ()
    assert codes(data.all_findings()) == {"skeleton": 2}


def test_categories_may_lack_points_or_name_them_otherwise(tmp_path):
    other = person(3, "cow", keypoints=["muzzle", "left_horn", "right_horn"])
    root = pair(tmp_path, [thing(1, category_id=2), thing(2, category_id=3, keypoints=POINTS)], [person(1, "a"), CATEGORIES[1], other])
    with pytest.warns(PellucidWarning, match=r"1 class\(es\) name their keypoints otherwise.*'cow' and 'a'"):
        data = open_dataset(root, POSE)
    index = data.splits["train"]
    assert index.keypoints.names == tuple(NAMES)
    assert index.labels.tolist() == [1, 2]
    assert index.instances(0).shapes["keypoints"].data[:, :, 2].tolist() == [[0, 0, 0], [2, 1, 0]]


def test_a_yaml_adds_sigmas_and_a_flip_map(tmp_path):
    pair(tmp_path, [thing(1, category_id=1, keypoints=POINTS)], PERSON)
    files = "train: train\ntrain_json: annotations/instances_train.json\nval: val\nval_json: annotations/instances_val.json\n"
    source = text(tmp_path / "shop.yaml", files + "kpt_sigmas: [.1, .2, .3]\nflip_idx: [0, 1, 2]\n")
    spec = open_dataset(source, POSE).splits["train"].keypoints
    assert (spec.sigmas, spec.flip) == ((0.1, 0.2, 0.3), (0, 1, 2))


def test_the_file_follows_what_is_needed(tmp_path):
    pair(tmp_path, [thing(1), thing(2)])
    pair(tmp_path, [thing(1, category_id=1, keypoints=POINTS)], PERSON, name="person_keypoints")
    assert open_dataset(tmp_path).names == open_dataset(tmp_path, SEGMENT).names == ("bike", "brush")
    assert open_dataset(tmp_path, POSE).names == ("person",)
    for split in ("train", "val"):
        (tmp_path / f"annotations/instances_{split}.json").unlink()
    assert open_dataset(tmp_path).names == open_dataset(tmp_path, SEGMENT).names == ("person",)
    pair(tmp_path, [], PERSON, name="hand_keypoints")
    with pytest.raises(DataError, match=r"found hand_keypoints_train\.json, person_keypoints_train\.json"):
        open_dataset(tmp_path, POSE)


def test_a_yaml_of_boxes_beside_coco_keypoints(tmp_path):
    pair(tmp_path, [thing(1, category_id=1, keypoints=POINTS)], PERSON, name="animal_keypoints")
    text(tmp_path / "data.yaml", "names: [animal]\ntrain: train\nval: val\n")
    text(tmp_path / "train/1.txt", "0 .5 .5 .5 .5\n")
    assert open_dataset(tmp_path, POSE).format == "coco"
    assert read_dataset(tmp_path).format == "yolo"
    text(tmp_path / "data.yaml", "names: [animal]\ntrain: train\nval: val\nkpt_shape: [3, 3]\n")
    with pytest.raises(DataError, match="not one label row"):
        open_dataset(tmp_path, POSE)


def test_sparse_ids_in_every_kind(tmp_path):
    categories = [{"id": i, "name": f"c{i}"} for i in range(1, 97)]
    used = [i for i in range(1, 97) if i % 8]
    annotations = [thing(n, image_id=900, category_id=i) for n, i in enumerate(used)]
    pair(tmp_path, annotations, categories, [image(7), image(900)])
    index = read(tmp_path)
    assert len(used) == 84
    assert index.category_ids == tuple(range(1, 97))
    assert [index.category_ids[label] for label in index.labels] == used
    assert index.ids.tolist() == [7, 900]
    assert [len(index.instances(i).shapes["polygons"]) for i in range(2)] == [0, 84]


@pytest.mark.parametrize("needs", [SEGMENT, POSE])
def test_images_with_and_without_objects(tmp_path, needs):
    images = [image(i) for i in range(1, 5)]
    annotations = [thing(1, 2, 1, keypoints=POINTS), thing(2, 4, 1, keypoints=POINTS), thing(3, 4, 1, keypoints=POINTS)]
    data = read_dataset(pair(tmp_path, annotations, PERSON, images), needs)
    kind = needs[1]
    assert [len(data.splits["train"].instances(i).shapes[kind]) for i in range(4)] == [0, 1, 0, 2]
    assert data.splits["val"].instances(0).shapes.keys() == data.splits["train"].instances(1).shapes.keys()
    assert data.all_findings() == ()


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_masks_and_points_drawn_on_the_unturned_picture(tmp_path, orientation):
    mask = ring_mask()
    annotations = [thing(1, category_id=1, segmentation=codes_of(mask)[0], bbox=..., keypoints=POINTS), thing(2, category_id=1)]
    pair(tmp_path, annotations, PERSON)
    picture(tmp_path / "train/1.jpg", orientation=orientation)
    turned = {5: mask.T, 6: np.rot90(mask, -1), 7: np.rot90(mask, 2).T, 8: np.rot90(mask)}[orientation]
    with pytest.warns(PellucidWarning, match="exif-frame"):
        index = open_dataset(tmp_path, SEGMENT).splits["train"]
    assert np.array_equal(index.instances(0).shapes["polygons"].rasterise(60, 40)[0].numpy(), turned)
    assert (index.instances(0).shapes["polygons"].area() > 0).all()
    index = read(tmp_path, POSE)
    nose = index.instances(0).shapes["keypoints"].data[0, 0]
    expected = {5: (6, 12), 6: (34, 12), 7: (34, 48), 8: (6, 48)}[orientation]
    assert nose.tolist() == [*expected, 2]
    assert EXIF_ORIENTATION == 0x0112


def test_the_doctor_reports_of_each_kind(tmp_path):
    annotations = [
        thing(1, category_id=1, keypoints=POINTS, segmentation=[]),
        thing(2, category_id=1, keypoints=[12, 66, 2, 9, 9, 1, 0, 0, 0]),
    ]
    pair(tmp_path, annotations, PERSON)
    segment, pose = doctor.check(tmp_path, SEGMENT), doctor.check(tmp_path, POSE)
    assert "object-without-polygon" in codes(segment.findings)
    assert "point-outside" in codes(pose.findings)
    assert segment.exit_code == pose.exit_code == 1
    assert json.loads(pose.to_json())["splits"]["train"]["objects"] == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.sampled_from(["", "abc", "PPYo1", "1"]),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.sampled_from(["size", "counts", "x"]), inner, max_size=3),
    max_leaves=9,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["bbox", "area", "iscrowd", "segmentation", "keypoints", "category_id", "image_id", "id"]), JSON))
def test_whatever_an_annotation_holds_the_next_is_read(tmp_path, odd):
    pair(tmp_path, [thing(1, category_id=1, keypoints=POINTS) | odd, thing(2, category_id=1, keypoints=POINTS)], PERSON)
    for needs in (("boxes",), SEGMENT, POSE):
        index = read(tmp_path, needs)
        assert len(index.labels) in (1, 2)
        assert index.labels[-1] == 0
        assert boxes(index, 0)[-1] == [10, 5, 30, 15]
        assert len(index.labels) == 2 or sum(finding.count for finding in index.findings) >= 1
        assert all(np.isfinite(column.values).all() for kind, column in index.columns.items() if kind != "polygons")

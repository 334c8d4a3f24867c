"""Columns of an Index: rows of polygons, keypoints and rotated boxes become shapes, select, and stay small."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.data import DataSet
from pellucid.data.columns import SHAPES, Ragged, decode_rings, encode_rings
from pellucid.data.index import IndexBuilder
from pellucid.geometry.keypoints import KeypointSpec
from pellucid.geometry.rboxes import RBoxes

from .test_index import _private_kib

SPEC = KeypointSpec.make(3, 3, ["nose", "left_ear", "right_ear"], skeleton=[(0, 1)])
RING = np.array([[1, 1], [9, 1], [9, 9.5]], np.float32)
RINGS = st.lists(st.integers(3, 7).map(lambda p: np.arange(2.0 * p).reshape(p, 2)), max_size=3)


def build(counts, kinds=("polygons", "keypoints", "corners", "area")):
    """Images with `counts` objects; object j of the set has j + 1 rings, its points at j, and a rectangle j + 2 wide."""
    builder = IndexBuilder(Path("/data"), kinds, SPEC)
    j = 0
    for i, count in enumerate(counts):
        builder.image(f"/data/{i}.jpg", (40, 60))
        for _ in range(count):
            rows = {
                "polygons": encode_rings([RING + k for k in range(j % 3 + 1)]),
                "keypoints": [j, j, 2, 0, 0, 0, j + 1, j, 1],
                "corners": np.array([[0, 0], [j + 2, 0], [j + 2, 1], [0, 1]]).reshape(-1),
                "area": (j + 0.5,),
            }
            builder.object(0, (0, 0, 5, 5), False, **{kind: rows[kind] for kind in kinds})
            j += 1
    return builder.build(("a",), (0,))


@settings(max_examples=60, deadline=None)
@given(st.lists(RINGS, max_size=5))
def test_rings_come_back(objects):
    rows = [encode_rings(rings) for rings in objects]
    start = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    points, rings, owners = decode_rings(Ragged(np.concatenate([np.zeros(0, np.float32), *rows]), start))
    assert len(owners) == len(objects) + 1
    for i, expected in enumerate(objects):
        own = [points[rings[j] : rings[j + 1]] for j in range(owners[i], owners[i + 1])]
        assert len(own) == len(expected)
        assert all(np.array_equal(a, b) for a, b in zip(own, expected, strict=True))


def test_instances_carry_every_shape_of_the_columns():
    index = build([2, 0, 2])
    assert set(index.columns) == {*SHAPES, "area"}
    objects = index.instances(2)
    shapes = objects.shapes
    assert list(shapes) == ["boxes", "polygons", "keypoints", "rboxes"]
    assert [len(shapes["polygons"].parts(i)) for i in range(2)] == [3, 1]
    assert np.array_equal(shapes["polygons"].parts(0)[2], RING + 2)
    assert shapes["keypoints"].data[0].tolist() == [[2, 2, 2], [0, 0, 0], [3, 2, 1]]
    assert shapes["keypoints"].flip == (0, 2, 1)
    assert shapes["keypoints"].skeleton == ((0, 1),)
    torch.testing.assert_close(shapes["rboxes"].data[1], torch.tensor([2.5, 0.5, 5, 1, 0]))
    assert index.columns["area"].values.tolist() == [0.5, 1.5, 2.5, 3.5]


def test_an_image_without_objects_has_every_shape_with_none():
    empty = build([2, 0, 2]).instances(1)
    assert {name: len(shape) for name, shape in empty.shapes.items()} == {"boxes": 0, "polygons": 0, "keypoints": 0, "rboxes": 0}
    assert empty.shapes["keypoints"].data.shape == (0, 3, 3)
    nothing = build([0, 0])  # a whole set of negatives
    assert set(nothing.columns) == {*SHAPES, "area"}
    assert len(nothing.instances(1).shapes["rboxes"]) == 0
    assert [len(index.instances(0).shapes["polygons"]) for index in (nothing.take([]).take([]), nothing) if len(index)] == [0]


def test_a_sample_does_not_share_the_arrays():
    index = build([2])
    for shape in index.instances(0).shapes.values():
        shape.data.fill_(-7)
    assert all((column.values != -7).all() for column in index.columns.values())
    assert (index.boxes != -7).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_take_selects_in_every_column(counts, data):
    index = build(counts)
    rows = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=8))
    taken = index.take(rows)
    assert taken.keypoints == SPEC
    for new, old in enumerate(rows):
        a, b = taken.instances(new), index.instances(old)
        assert list(a.shapes) == list(b.shapes)
        for name in a.shapes:
            assert torch.equal(a.shapes[name].data, b.shapes[name].data)
        assert torch.equal(a.shapes["polygons"].objects, b.shapes["polygons"].objects)
    assert len(taken.single_class().columns["polygons"]) == len(taken.labels)


def test_objects_have_the_columns_that_were_announced():
    builder = IndexBuilder(Path("/data"), ("area",))
    builder.image("/data/a.jpg", (4, 4))
    for wrong in ({}, {"area": (1,), "keypoints": (1, 2, 3)}):
        with pytest.raises(ValueError, match="expected the columns area"):
            builder.object(0, (0, 0, 1, 1), False, **wrong)
    assert len(builder.build((), ()).labels) == 0


def test_corners_become_canonical_rotated_boxes():
    index = build([3], ("corners",))
    boxes = index.instances(0).shapes["rboxes"]
    assert isinstance(boxes, RBoxes)
    assert boxes.data[:, 2].tolist() == pytest.approx([2, 3, 4])
    assert (boxes.data[:, 2] >= boxes.data[:, 3]).all()


def test_what_the_data_say_about_the_task():
    index = build([1])
    said = DataSet(Path("/data"), "coco", {"val": index}, ("a",), (0,)).task_args()
    assert said == {
        "points": 3,
        "dims": 3,
        "sigmas": [1 / 3] * 3,
        "flip": [0, 2, 1],
        "point_names": ["nose", "left_ear", "right_ear"],
        "skeleton": [[0, 1]],
    }
    plain = IndexBuilder(Path("/data"))
    plain.image("/data/a.jpg", (4, 4))
    assert DataSet(Path("/data"), "coco", {"val": plain.build((), ())}, (), ()).task_args() == {}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_hundred_thousand_records_with_polygons_and_keypoints_do_not_grow_in_a_worker():
    index = build([4] * 2000, ("polygons", "keypoints", "area")).take(np.tile(np.arange(2000), 100))
    assert len(index) == 200_000
    assert len(index.labels) == 800_000
    numbers = sum(column.values.size for column in index.columns.values())
    assert numbers > 15e6
    assert index.nbytes < 4 * numbers + 8 * 3 * len(index.labels) + 50e6  # four bytes a number, eight a row and column
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        gc.disable()  # a collection would touch every object of the test process
        for row in range(300):  # what any worker allocates once
            index.instances(row)
        before = _private_kib()
        for row in range(0, 200_000, 29):
            index.instances(row)
        os.write(write, str(_private_kib() - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 32)) < 4096
    os.close(read)
    os.close(write)

"""Index: flat arrays that select, count, stay small and do not grow in a worker."""

import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.data.columns import Ragged
from pellucid.data.index import IndexBuilder


def build(counts, root="/data"):
    builder = IndexBuilder(Path(root))
    rng = np.random.default_rng(1)
    for row, count in enumerate(counts):
        builder.image(f"{root}/images/train/照片_{row:06d}.jpg", (480, 640), row * 3 + 1)
        for _ in range(count):
            x, y = rng.uniform(0, 300, 2)
            builder.object(int(rng.integers(3)), (x, y, x + 20, y + 30), bool(rng.random() < 0.2))
    return builder.build(("a", "b", "c"), (1, 5, 9))


def test_records_come_back():
    index = build([2, 0, 3])
    assert len(index) == 3
    assert index.path(2) == Path("/data/images/train/照片_000002.jpg")
    objects = index.instances(2)
    assert len(objects) == 3
    assert objects.labels.tolist() == index.labels[2:].tolist()
    assert np.array_equal(objects.shapes["boxes"].data.numpy(), index.boxes[2:])
    assert objects.ignore.tolist() == index.ignore[2:].tolist()
    assert len(index.instances(1)) == 0
    assert index.instances(1).shapes["boxes"].data.shape == (0, 4)
    objects.shapes["boxes"].data.zero_()
    assert index.boxes[2:].any()


def test_paths_outside_the_root_stay_absolute():
    builder = IndexBuilder(Path("/data/set"))
    builder.image("/data/set2/a.jpg", (1, 1))
    builder.image(b"/data/set/\xff.jpg".decode(errors="surrogateescape"), (1, 1))
    index = builder.build((), ())
    assert index.path(0) == Path("/data/set2/a.jpg")
    assert os.fsencode(index.path(1)) == b"/data/set/\xff.jpg"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.data())
def test_take_equals_row_by_row(counts, data):
    index = build(counts)
    rows = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=10))
    column = Ragged(np.arange(2 * len(index.labels)), np.arange(len(index.labels) + 1) * 2)
    index = type(index)(**{**index.__dict__, "columns": {"twos": column}})
    taken = index.take(rows)
    assert len(taken) == len(rows)
    for new, old in enumerate(rows):
        assert taken.path(new) == index.path(old)
        assert taken.ids[new] == index.ids[old]
        assert np.array_equal(taken.instances(new).shapes["boxes"].data, index.instances(old).shapes["boxes"].data)
        assert taken.instances(new).labels.tolist() == index.instances(old).labels.tolist()
    expected = [column[j] for old in rows for j in range(index.start[old], index.start[old + 1])]
    assert np.array_equal(taken.columns["twos"].values, np.concatenate(expected) if expected else [])


def test_counts_leave_ignored_objects_out_and_one_class_keeps_all():
    index = build([40, 40])
    assert index.ignore.any()
    assert index.class_counts().sum() == (~index.ignore).sum()
    single = index.single_class()
    assert single.names == ("object",)
    assert single.class_counts().tolist() == [(~index.ignore).sum()]


def _private_kib():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty", "Private_Clean")))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_hundred_thousand_records_are_small_and_a_worker_does_not_grow():
    index = two_hundred_thousand()
    assert len(index) == 200_000
    assert len(index.labels) == 1_600_000
    assert index.nbytes < 100e6
    assert len(pickle.dumps(index)) < 100e6
    code = "from tests.data.test_index import growth_of_a_worker; print(growth_of_a_worker())"  # few other objects are in a new process
    root = Path(__file__).parents[2]
    told = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert int(told.stdout) < 4096


def two_hundred_thousand():
    index = build([1] * 4000).take(np.tile(np.arange(4000), 50))
    return type(index)(**{**index.__dict__, **_eight_objects(index)})


def growth_of_a_worker():
    """KiB that a forked worker has for itself alone after it has read every seventh record."""
    index = two_hundred_thousand()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        gc.disable()  # a collection would touch every object
        for row in range(300):  # what any worker allocates once
            index.path(row), index.instances(row)
        before = _private_kib()
        for row in range(0, 200_000, 7):
            index.path(row), index.instances(row)
        os.write(write, str(_private_kib() - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(read, 32))


def _eight_objects(index):
    count = 8 * len(index)
    rng = np.random.default_rng(0)
    return {
        "start": np.arange(len(index) + 1) * 8,
        "labels": rng.integers(0, 3, count).astype(np.int32),
        "boxes": rng.random((count, 4)).astype(np.float32),
        "ignore": np.zeros(count, bool),
    }


def test_ragged_is_empty_gracefully():
    empty = Ragged(np.zeros((0, 2)), np.zeros(1, np.int64))
    assert len(empty) == 0
    assert len(empty.take(np.zeros(0, np.int64))) == 0
    with pytest.raises(IndexError):
        empty[0]

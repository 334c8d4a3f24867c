"""ImageStore: the same pixels in every mode; what changed on disk, was cut or was torn is decoded again."""

import multiprocessing
import os
import pickle
import shutil

import numpy as np
import pytest

from pellucid.data import cache, open_dataset
from pellucid.data.cache import ImageStore
from pellucid.data.images import read_image, resize_longest
from pellucid.data.index import IndexBuilder
from pellucid.errors import DataError, MissingFileError, PellucidWarning, UsageError

from .make import picture

SIZE = 96
FORKS = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def index(tmp_path):
    rng = np.random.default_rng(0)
    builder = IndexBuilder(tmp_path)
    for row in range(6):
        width, height = (int(n) for n in rng.integers(20, 200, 2))
        path = picture(tmp_path / f"圖 {row}.png", width, height, tuple(int(n) for n in rng.integers(0, 256, 3)))
        builder.image(path, (height, width))
    return builder.build((), ())


def expected(index, row):
    return resize_longest(read_image(index.path(row)), SIZE)


@pytest.mark.parametrize("mode", cache.MODES)
def test_every_mode_gives_the_resized_pictures(index, mode, tmp_path):
    store = ImageStore(index, SIZE, mode, tmp_path / "cache")
    assert store.nbytes == sum(expected(index, row).size for row in range(6))
    for row in [3, 0, 3, *range(6), *range(6)]:
        assert np.array_equal(store[row], expected(index, row))
        assert max(store[row].shape) == SIZE
    with pytest.raises(IndexError):
        store[6]


@FORKS
def test_ram_is_shared_with_forked_workers(index, monkeypatch):
    truth = [expected(index, row) for row in range(6)]
    store = ImageStore(index, SIZE, "ram")
    child = os.fork()
    if child == 0:
        for row in range(6):
            store[row]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    monkeypatch.setattr(cache, "read_image", None)  # the child decoded everything
    assert all(np.array_equal(store[row], truth[row]) for row in range(6))
    with pytest.raises(UsageError, match="forked workers"):
        pickle.dumps(store)


@pytest.mark.parametrize("mode", ["none", "disk"])
def test_spawned_workers_get_a_working_copy(index, mode, tmp_path):
    store = ImageStore(index, SIZE, mode, tmp_path / "cache")
    copy = pickle.loads(pickle.dumps(store))
    assert np.array_equal(copy[2], expected(index, 2))
    assert np.array_equal(store[2], expected(index, 2))


def test_pixels_of_an_earlier_reader_are_not_served(index, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "READER_VERSION", cache.READER_VERSION - 1)
    monkeypatch.setattr(cache, "read_image", lambda path: 255 - read_image(path))
    earlier = ImageStore(index, SIZE, "disk", tmp_path / "cache")
    assert all(not np.array_equal(earlier[row], expected(index, row)) for row in range(6))
    monkeypatch.undo()
    later = ImageStore(index, SIZE, "disk", tmp_path / "cache")
    assert all(np.array_equal(later[row], expected(index, row)) for row in range(6))


def test_disk_is_found_again_and_not_decoded_twice(index, tmp_path, monkeypatch):
    first = ImageStore(index, SIZE, "disk", tmp_path / "cache")
    pictures = [first[row] for row in range(6)]
    monkeypatch.setattr(cache, "read_image", None)
    again = ImageStore(index, SIZE, "disk", tmp_path / "cache")
    assert all(np.array_equal(again[row], pictures[row]) for row in range(6))


def test_a_changed_picture_is_decoded_again_and_the_others_are_not_shifted(index, tmp_path):
    folder = tmp_path / "cache"
    store = ImageStore(index, SIZE, "disk", folder)
    before = [store[row] for row in range(6)]
    height, width = (int(n) for n in index.sizes[2])
    picture(index.path(2), width, height, (1, 2, 3))
    os.utime(index.path(2), ns=(1, 1))
    for chosen in (store, ImageStore(index, SIZE, "disk", folder)):
        assert chosen[2].reshape(-1, 3)[0].tolist() == [1, 2, 3]
        assert all(np.array_equal(chosen[row], before[row]) for row in (0, 1, 3, 4, 5))


def test_without_a_folder_the_users_cache_is_used(index, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    store = ImageStore(index, SIZE, "disk")
    assert np.array_equal(store[0], expected(index, 0))
    assert [path.suffix for path in (tmp_path / "home" / "pellucid").iterdir()] == [".pixels"]


def test_other_size_or_other_list_never_reads_the_same_file(index, tmp_path):
    folder = tmp_path / "cache"
    names = set()
    for chosen, size in ((index, SIZE), (index, 64), (index.take([1, 0, 2]), SIZE), (index.take([0, 1, 2]), SIZE)):
        store = ImageStore(chosen, size, "disk", folder)
        names.add(store._backing._path)
        assert all(np.array_equal(store[row], resize_longest(read_image(chosen.path(row)), size)) for row in range(len(chosen)))
    assert len(names) == 4


@pytest.mark.parametrize("damage", ["pixels", "key", "half"])
def test_damaged_records_are_not_used(index, tmp_path, damage):
    store = ImageStore(index, SIZE, "disk", tmp_path / "cache")
    for row in range(6):
        store[row]
    file = store._backing._path
    content = bytearray(file.read_bytes())
    at = store._backing._pixels_at + int(store._start[4])
    if damage == "pixels":
        content[at + 100 : at + 200] = bytes(b ^ 255 for b in content[at + 100 : at + 200])
    elif damage == "key":
        content[4 * cache._KEY.size] ^= 1
    else:
        content[at:] = bytes(len(content) - at)
    file.write_bytes(content)
    again = ImageStore(index, SIZE, "disk", tmp_path / "cache")
    assert all(np.array_equal(again[row], expected(index, row)) for row in range(6))


def _hammer(store, rounds, failures):
    truth = ImageStore(store.index, SIZE)
    pictures = [truth[row] for row in range(6)]
    for turn in range(rounds):
        for row in range(6):
            if not np.array_equal(store[row], pictures[row]):
                failures.value += 1
        store._backing.write(turn % 6, int(store._start[turn % 6]), pictures[turn % 6], store._key(turn % 6))


@FORKS
def test_many_writers_never_show_a_torn_picture(index, tmp_path):
    context = multiprocessing.get_context("fork")
    failures = context.Value("i", 0)
    store = ImageStore(index, SIZE, "disk", tmp_path / "cache")
    workers = [context.Process(target=_hammer, args=(store, 150, failures)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert failures.value == 0


def test_a_full_disk_is_said_once_and_survived(index, tmp_path, monkeypatch):
    store = ImageStore(index, SIZE, "disk", tmp_path / "cache")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.warns(PellucidWarning, match="No space left"):
        assert np.array_equal(store[0], expected(index, 0))
    assert np.array_equal(store[1], expected(index, 1))


def test_refusals_say_what_to_do(index, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="none, ram, disk"):
        ImageStore(index, SIZE, "memory")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cache=disk cannot use"):
        ImageStore(index, SIZE, "disk", tmp_path / "file" / "cache")
    monkeypatch.setattr(cache, "available_memory", lambda: 1000)
    with pytest.raises(UsageError, match="use cache=disk or none"):
        ImageStore(index, SIZE, "ram")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(UsageError, match="cache=disk needs"):
        ImageStore(index, SIZE, "disk", tmp_path / "cache")


@pytest.mark.parametrize("mode", cache.MODES)
def test_lost_and_swapped_pictures_are_named(index, tmp_path, mode):
    store = ImageStore(index, SIZE, mode, tmp_path / "cache")
    index.path(0).unlink()
    picture(index.path(1), 7, 9)
    index.path(2).write_bytes(b"no picture")
    with pytest.raises(MissingFileError, match=r"圖 0\.png"):
        store[0]
    with pytest.raises(DataError, match=r"圖 1\.png.*found 7x9"):
        store[1]
    with pytest.raises(DataError, match=r"圖 2\.png"):
        store[2]


def test_shipped_sample_through_the_cache(tmp_path):
    index = open_dataset("trees").splits["val"]
    plain, kept = ImageStore(index, 320), ImageStore(index, 320, "disk", tmp_path)
    assert all(np.array_equal(kept[row], plain[row]) for row in (0, 1, 0, 1))
    assert plain[0].std() > 10
    assert cache.available_memory() > 1 << 20

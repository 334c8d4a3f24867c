import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pellucid.errors import DataError, MissingFileError, UsageError
from pellucid.predict import open_sources


def put(path, size=(8, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 30, 30)).save(path)
    return path


def names(source):
    return [str(item.name) for item in open_sources(source)]


def test_a_folder_in_natural_order_with_its_tree(tmp_path):
    for name in ("10.jpg", "2.jpg", "b/1.jpg", "a/1.jpg", "a/notes.png.txt", ".hidden.jpg", "1.PNG"):
        put(tmp_path / name) if not name.endswith(".txt") else (tmp_path / name).write_text("")
    assert names(tmp_path) == ["1.PNG", "2.jpg", "10.jpg", "a/1.jpg", "b/1.jpg"]
    assert names(str(tmp_path)) == names(tmp_path)


def test_one_stem_twice_gets_two_names(tmp_path):
    for name in ("1.jpg", "1.png", "1-2.jpg"):
        put(tmp_path / name)
    found = names(tmp_path)
    assert len(found) == 3
    assert len({Path(name).stem for name in found}) == 3
    assert set(found) >= {"1.jpg", "1-2.jpg"}


@pytest.mark.parametrize("kind", ["list", "glob", "text"])
def test_one_name_in_two_folders_gets_two_names(tmp_path, kind, monkeypatch):
    first, second = put(tmp_path / "a/1.jpg"), put(tmp_path / "b/1.jpg")
    (tmp_path / "all.txt").write_text("# ours\na/1.jpg\n\n" + str(second) + "\n")
    source = {"list": [first, str(second)], "glob": str(tmp_path / "*/1.jpg"), "text": tmp_path / "all.txt"}[kind]
    assert names(source) == ["a/1.jpg", "b/1.jpg"]
    assert names([first, first]) == ["1.jpg", "1-2.jpg"]


def test_names_never_leave_the_output_folder(tmp_path, monkeypatch):
    inner = tmp_path / "inner"
    put(tmp_path / "x.jpg"), put(inner / "y.jpg")
    monkeypatch.chdir(inner)
    assert names(["../x.jpg", "y.jpg"]) == ["x.jpg", "inner/y.jpg"]
    assert names("../x.jpg") == ["x.jpg"]


def test_other_scripts(tmp_path):
    path = put(tmp_path / "数据 集" / "지단.jpg")
    assert names(path) == names(path.parent) == ["지단.jpg"]


def test_links_in_a_circle_end(tmp_path):
    put(tmp_path / "a/1.jpg")
    os.symlink(tmp_path, tmp_path / "a/again", target_is_directory=True)
    assert names(tmp_path) == ["a/1.jpg"]


def test_a_glob_character_in_a_real_name_is_not_a_pattern(tmp_path):
    assert names(put(tmp_path / "photo[1].jpg")) == ["photo[1].jpg"]


def test_pixels_of_every_kind():
    array = np.arange(48 * 64 * 3, dtype=np.uint8).reshape(48, 64, 3)
    assert names([array, Image.fromarray(array)]) == ["image0.jpg", "image0-2.jpg"]
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    for source, count in ((array, 1), (array[..., 0], 1), (tensor, 1), (torch.stack([tensor, tensor]), 2)):
        assert len(list(open_sources(source))) == count
    assert np.array_equal(next(open_sources(tensor)).image, array)


def test_a_folder_is_read_as_it_is_asked_for(tmp_path, monkeypatch):
    for number in range(6):
        put(tmp_path / f"{number}/x.jpg")
    opened = []
    scan = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: opened.append(self) or scan(self))
    stream = open_sources(tmp_path)
    next(stream)
    assert len(opened) == 2  # the folder and its first


@pytest.mark.parametrize("source", ["https://example.org/a.jpg", "rtsp://camera/1", "0", "-", "clip.mp4", 3, [], None])
def test_what_is_not_read_is_refused_at_once(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("clip.mp4").write_bytes(b"")
    with pytest.raises(UsageError, match="source: expected"):
        open_sources(source)


def test_a_wrong_tensor_is_refused():
    with pytest.raises(UsageError, match="channels first"):
        open_sources(torch.zeros(48, 64, 3))


def test_missing_files_and_empty_folders(tmp_path):
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(MissingFileError, match="gone"):
        open_sources(tmp_path / "gone.jpg")
    with pytest.raises(MissingFileError, match="pattern"):
        open_sources(str(tmp_path / "*.jpg"))
    with pytest.raises(DataError, match="no line"):
        open_sources(tmp_path / "none.txt")
    with pytest.raises(DataError, match="found none"):
        list(open_sources(tmp_path))

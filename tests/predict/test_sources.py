import io
import os
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize("source", ["ftp://example.org/a.jpg", "rtsp://camera/1", [], None, True, 1.5, {}], ids=str)
def test_what_is_not_read_is_refused_at_once(source):
    with pytest.raises(UsageError, match="source: expected"):
        open_sources(source)


@pytest.mark.parametrize("source", [977, "977"])
def test_a_camera_that_is_not_there(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingFileError, match=r"source=977: expected a camera at /dev/video977, found none"):
        open_sources(source)
    put(tmp_path / "977" / "1.jpg")  # a folder of that name comes first
    assert names("977") == ["1.jpg"]


def test_arrays_in_the_order_blue_green_red():
    rgb = np.arange(6 * 5 * 4, dtype=np.uint8).reshape(6, 5, 4)
    bgr = rgb[..., [2, 1, 0, 3]]
    plain, turned = next(open_sources(rgb)).read(), next(open_sources(bgr, color="bgr")).read()
    assert np.array_equal(plain, rgb[..., :3])
    assert np.array_equal(plain, turned)
    tensor = torch.from_numpy(bgr[..., :3].copy()).permute(2, 0, 1)
    assert np.array_equal(next(open_sources(tensor, color="bgr")).read(), plain)
    assert [np.array_equal(s.read(), plain) for s in open_sources([bgr, Image.fromarray(rgb[..., :3])], color="bgr")] == [True, True]
    grey = rgb[..., 0]
    assert np.array_equal(next(open_sources(grey, color="bgr")).read(), np.repeat(grey[..., None], 3, 2))
    with pytest.raises(UsageError, match="color: expected arrays beside color=bgr, got str"):
        open_sources("a.jpg", color="bgr")


def test_an_array_of_every_depth():
    array = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
    tensor = torch.from_numpy(array).permute(2, 0, 1)
    deep = array.astype(np.uint16) << 8
    for same in (array / 255, deep, np.dstack((array, array[..., :1])), tensor.float() / 255, tensor.bfloat16()[None].float() / 255):
        assert np.array_equal(next(open_sources(same)).read(), array)
    assert next(open_sources(tensor.bfloat16() / 255)).read().shape == array.shape
    for bad in (array.astype(np.int32), array[None], array.astype(float)):
        with pytest.raises(DataError, match="expected an image array"):
            next(open_sources(bad)).read()


def test_an_iterator_is_asked_for_one_at_a_time():
    given = []
    arrays = (given.append(number) or np.full((4, 4, 3), number, np.uint8) for number in range(5))
    stream = open_sources(arrays)
    assert given == []
    assert str(next(stream).name) == "image0.jpg"
    assert given == [0]
    with pytest.raises(UsageError, match="empty list"):
        next(open_sources(iter([])))
    assert [str(source.name) for source in stream] == [f"image0-{number}.jpg" for number in range(2, 6)]


def piped(monkeypatch, content):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def test_stdin_is_a_list_or_a_picture(tmp_path, monkeypatch):
    first, second = put(tmp_path / "a/1.jpg"), put(tmp_path / "b/1.jpg", (9, 7))
    monkeypatch.chdir(tmp_path)
    piped(monkeypatch, f"a/1.jpg\n# no\n{second}\n".encode())
    assert names("-") == ["a/1.jpg", "b/1.jpg"]
    for suffix in ("jpg", "png", "bmp", "tiff", "webp"):
        picture = tmp_path / f"x.{suffix}"
        Image.open(second).save(picture)
        piped(monkeypatch, picture.read_bytes())
        (source,) = open_sources("-")
        assert source.read().shape == (7, 9, 3)
        assert (str(source.name), source.path) == ("stdin.jpg", "stdin")
    piped(monkeypatch, first.read_bytes())
    with pytest.raises(UsageError, match="vid_stride: expected a video"):
        open_sources("-", vid_stride=2)
    piped(monkeypatch, b" \n")
    with pytest.raises(DataError, match="stdin: expected an encoded picture or a list of paths, got nothing"):
        open_sources("-")


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


@pytest.mark.parametrize("kind", [list, iter])
def test_an_item_that_cannot_be_opened_is_one_picture_that_cannot_be_read(tmp_path, kind):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    bad = [str(tmp_path / "gone.jpg"), tmp_path / "gone", "a" * 300 + ".jpg", tmp_path / "empty", tmp_path / "broken.mp4", 987]
    array = np.zeros((4, 4, 3), np.uint8)
    sources = list(open_sources(kind([array, *bad, put(tmp_path / "1.jpg")])))
    assert [str(source.name) for source in (sources[0], sources[-1])] == ["image0.jpg", "1.jpg"]
    assert [source.path for source in sources[1:-1]] == [str(item) for item in bad]
    for source in sources[1:-1]:
        with pytest.raises(DataError, match="expected"):
            source.read()
    with pytest.raises(MissingFileError, match="gone"):
        sources[1].read()
    with pytest.raises(UsageError, match="expected a path"):
        list(open_sources(kind([array, None])))


def test_a_list_that_may_not_be_read_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "all.txt").write_text("1.jpg\n")

    def refused(*given, **more):
        raise PermissionError(13, "Permission denied", str(given[0]))

    monkeypatch.setattr("builtins.open", refused)
    with pytest.raises(DataError, match=r"all\.txt: cannot be read \(Permission denied\)"):
        open_sources(tmp_path / "all.txt")


def test_a_folder_that_may_not_be_listed_is_one_sentence(tmp_path, monkeypatch):
    def refused(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(DataError, match=r"cannot be listed \(Permission denied\); check its permissions"):
        list(open_sources(tmp_path))


def test_a_name_that_is_too_long_is_missing():
    with pytest.raises(MissingFileError, match="found nothing there"):
        open_sources("a" * 300 + ".jpg")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_list_of_names_in_any_encoding(tmp_path, mark, monkeypatch):
    path = put(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg")), (9, 7))
    rows = mark + os.fsencode(path) + b"\n"
    (tmp_path / "all.txt").write_bytes(rows)
    piped(monkeypatch, rows)
    for source in (tmp_path / "all.txt", "-"):
        (found,) = open_sources(source)
        assert found.read().shape == (7, 9, 3)


def test_an_open_file_is_one_picture(tmp_path):
    path = tmp_path / "a.png"
    picture = Image.new("RGB", (30, 20), (200, 30, 30))
    picture.save(path)
    content = io.BytesIO(path.read_bytes())
    (source,) = open_sources(content)
    assert source.read().shape == (20, 30, 3)
    assert str(source.name) == "image0.jpg"
    with path.open("rb") as file:
        (source,) = open_sources([file])
        assert (source.path, str(source.name)) == (str(path), "a.png")
        assert source.read()[0, 0].tolist() == [200, 30, 30]
    for text, kind in ((io.StringIO("a.png"), "str"),):
        with pytest.raises(UsageError, match=f"open in binary mode, got one that gives {kind}; open it with 'rb'"):
            open_sources(text)
    for wrong in ({"color": "bgr"}, {"vid_stride": 2}):
        with pytest.raises(UsageError, match=f"^{next(iter(wrong))}: "):
            open_sources(io.BytesIO(path.read_bytes()), **wrong)
    (source,) = open_sources(io.BytesIO())
    with pytest.raises(DataError, match="got 0 bytes"):
        source.read()

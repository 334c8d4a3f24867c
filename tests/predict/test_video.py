"""Videos in, drawn videos out; every frame where it belongs."""

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from pellucid.cli import main
from pellucid.errors import DataError, PellucidWarning, UsageError
from pellucid.predict import open_sources, predict
from pellucid.predict import video as video_module
from pellucid.predict.files import Kept, write_results
from pellucid.predict.video import VideoWriter, upright
from tests.decode.fakes import RedFinder
from tests.predict.test_predict import CARD, picture, save


def box_at(index):
    return 4 + 3 * index, 10, 34 + 3 * index, 50


def make_video(path, frames=10, size=(96, 64), rate=Fraction(25)):
    """A red square that moves three pixels a frame to the right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = VideoWriter(path, size[::-1], rate)
    for index in range(frames):
        writer.add(picture(box_at(index), size))
    writer.close()
    return path


def facts(path):
    """Frames a second, (height, width), number of frames."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return stream.average_rate, (stream.height, stream.width), sum(1 for _ in container.decode(stream))


@pytest.mark.parametrize("suffix", [".mp4", ".avi", ".mkv"])
@pytest.mark.parametrize("stride", [1, 3])
def test_frames_have_number_time_and_objects(tmp_path, suffix, stride):
    path = make_video(tmp_path / f"clip{suffix}")
    results = list(predict(RedFinder(), CARD, path, vid_stride=stride, batch=2))
    assert [result.frame.index for result in results] == list(range(0, 10, stride))
    assert [result.frame.time for result in results] == pytest.approx([index / 25 for index in range(0, 10, stride)], abs=2e-3)
    assert {result.frame.rate for result in results} == {25 / stride}
    assert str(results[1].name) == f"clip{suffix}/{stride:06d}.jpg"
    for result in results:
        assert len(result) == 1
        assert np.abs(result.boxes.xyxy[0].numpy() - box_at(result.frame.index)).max() < 3
    content = json.loads(results[-1].to_json())
    assert (content["frame"], content["time"]) == (results[-1].frame.index, results[-1].frame.time)
    assert (content["height"], content["width"]) == (64, 96)


def test_a_picture_has_no_frame():
    (result,) = predict(RedFinder(), CARD, picture())
    assert result.frame is None
    assert "frame" not in json.loads(result.to_json())


@pytest.mark.parametrize("size", [(96, 64), (95, 63)])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_drawn_video_is_as_fast_and_as_large(tmp_path, size, stride):
    rate = Fraction(30000, 1001)
    path = make_video(tmp_path / "in" / "clip.avi", 8, size, rate)
    results = predict(RedFinder(), CARD, path, vid_stride=stride)
    drawn = [result.plot() for result in write_results(results, tmp_path / "out", Kept())]
    assert [file.name for file in (tmp_path / "out").rglob("*")] == ["clip.mp4"]
    found_rate, found_size, count = facts(tmp_path / "out" / "clip.mp4")
    assert float(found_rate) == pytest.approx(float(rate / stride), rel=1e-4)
    assert found_size == size[::-1]
    assert count == len(drawn) == 8 // stride
    with av.open(str(tmp_path / "out" / "clip.mp4")) as container:
        for frame, wanted in zip(container.decode(video=0), drawn, strict=True):
            assert np.abs(frame.to_ndarray(format="rgb24").astype(int) - wanted).mean() < 12


def test_videos_and_pictures_of_one_folder_keep_their_own_names(tmp_path):
    for name in ("a/clip.mp4", "b/clip.mp4", "b/clip.avi"):
        make_video(tmp_path / "in" / name, 3)
    save(tmp_path / "in" / "b" / "clip.jpg", picture())
    kept = Kept(save_txt=True, save_crop=True, save_json=True)
    for source in (tmp_path / "in", str(tmp_path / "in/*/clip.*"), [tmp_path / "in/a", tmp_path / "in/b"]):
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        out.mkdir()
        results = list(write_results(predict(RedFinder(), CARD, source), out, kept))
        assert len(results) == 10
        assert len({result.name for result in results}) == 10
        assert len([path for path in out.rglob("*.mp4") if path.is_file()]) == 3
        assert len([path for path in out.rglob("*.jpg") if "crops" not in path.parts]) == 1
        assert len(list((out / "labels").rglob("*.txt"))) == len(list((out / "crops" / "red").rglob("*.jpg"))) == 10
        assert {record["image_id"] for record in json.loads((out / "predictions.json").read_text())} == set(range(10))


def test_the_command_line_writes_video_labels_and_json(tmp_path, capsys):
    make_video(tmp_path / "clip.mp4", 5)
    words = ["model=detect-n", f"source={tmp_path / 'clip.mp4'}", "imgsz=64", "vid_stride=2", "device=cpu", f"project={tmp_path}"]
    assert main(["predict", *words, "conf=0", "max_det=2", "save_txt=true", "save_crop=true", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["frame"] for line in lines] == [0, 2, 4]
    folder = tmp_path / "detect" / "predict"
    assert facts(folder / "clip.mp4")[1:] == ((64, 96), 3)
    assert sorted(path.name for path in (folder / "labels" / "clip.mp4").iterdir()) == ["000000.txt", "000002.txt", "000004.txt"]
    assert list((folder / "crops").rglob("*.jpg"))


def test_a_video_that_breaks_off_gives_what_it_has(tmp_path, monkeypatch):
    path = make_video(tmp_path / "clip.mp4", 6)
    decode = VideoBreaks(3)
    monkeypatch.setattr(video_module, "upright", decode)
    with pytest.warns(
        PellucidWarning,
        match=r"1 of 4 pictures could not be read: .*clip\.mp4: expected a video that is whole, got one that breaks off \(broken packet\)",
    ):
        assert len(list(predict(RedFinder(), CARD, path))) == 3
    decode.left = 3
    save(tmp_path / "in" / "z.png", picture())
    make_video(tmp_path / "in" / "clip.mp4", 6)
    with pytest.warns(PellucidWarning, match="1 of 5 pictures"):
        assert [result.frame is None for result in predict(RedFinder(), CARD, tmp_path / "in")] == [False] * 3 + [True]


class VideoBreaks:
    """Stands for a decoder that fails after some frames."""

    def __init__(self, left):
        self.left = left

    def __call__(self, image, turned):
        self.left -= 1
        if self.left < 0:
            raise OSError("broken packet")
        return image


def test_what_is_no_video_is_one_sentence(tmp_path):
    (tmp_path / "clip.mp4").write_bytes(b"not a video" * 100)
    with pytest.raises(DataError, match=r"clip\.mp4: expected a video that can be opened"):
        open_sources(tmp_path / "clip.mp4")
    (tmp_path / "list.mp4").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n")
    with pytest.raises(DataError, match=r"list\.mp4"):  # a playlist in disguise reaches no server
        list(open_sources(tmp_path / "list.mp4"))


def test_without_the_package_one_sentence_says_so(tmp_path, monkeypatch):
    make_video(tmp_path / "clip.mp4", 2)
    save(tmp_path / "a.png", picture())
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(UsageError, match=r"expected the package av, found none; pip install 'pellucid\[video\]'"):
        open_sources(tmp_path / "clip.mp4")
    with pytest.warns(PellucidWarning, match=r"1 of 2 pictures .*package av"):
        assert [str(result.name) for result in predict(RedFinder(), CARD, tmp_path)] == ["a.png"]


@pytest.mark.parametrize(("turned", "quarters"), [(0, 0), (90, 1), (-90, 3), (180, 2), (-180, 2)])
def test_a_turned_video_is_upright(turned, quarters):
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert np.array_equal(upright(image, turned), np.rot90(image, quarters))


def test_stopping_early_leaves_a_whole_video_and_whole_json(tmp_path):
    path = make_video(tmp_path / "clip.mp4", 10)
    stream = write_results(predict(RedFinder(), CARD, path), tmp_path, Kept(save_json=True))
    for _ in range(4):
        next(stream)
    stream.close()
    assert facts(tmp_path / "clip.mp4")[2] in (4, 10)
    assert len(json.loads((tmp_path / "predictions.json").read_text())) == 4
    assert not Path(tmp_path / "predictions.json.part").exists()

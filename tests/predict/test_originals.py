"""What a user made is never replaced by what is found: the pictures that were read, and label files."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from pellucid.cli import main
from pellucid.config import PredictConfig
from pellucid.errors import UsageError
from pellucid.model import predict_files
from pellucid.predict import predict
from pellucid.predict.files import Kept, write_results
from tests.decode.fakes import RedFinder
from tests.predict.test_predict import CARD, picture, save


def find(source):
    found = list(predict(RedFinder(), CARD, source))
    assert found
    assert all(len(result) for result in found)  # so that drawing would change the picture
    return found


def test_a_drawn_picture_does_not_take_the_place_of_the_one_that_was_read(tmp_path):
    path = save(tmp_path / "photos" / "a.png", picture())
    before = Path(path).read_bytes()
    (tmp_path / "again").symlink_to(tmp_path / "photos")
    (result,) = find(path)
    for folder in (tmp_path / "photos", tmp_path / "again"):
        with pytest.raises(UsageError, match=r"a\.png: expected a place that is not the picture that was read, .*choose another folder"):
            result.save(folder)
    assert Path(path).read_bytes() == before
    (twice, _) = result.save(tmp_path / "out"), result.save(tmp_path / "out")
    assert twice.read_bytes() != before


def test_a_cut_out_object_does_not_take_the_place_of_the_picture(tmp_path):
    path = save(tmp_path / "red" / "a-0.png", picture())
    (result,) = find(path)
    assert result.names[int(result.boxes.cls[0])] == "red"
    with pytest.raises(UsageError, match=r"a-0\.png: expected a place that is not the picture that was read"):
        replace(result, name=Path("a.png")).save_crop(tmp_path)


def test_labels_that_are_there_are_kept(tmp_path):
    (result,) = find(save(tmp_path / "images" / "a.png", picture()))
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    with pytest.raises(UsageError, match=r"a\.txt: expected no file there yet, .*choose another folder, or exist_ok=True"):
        result.save_txt(tmp_path / "labels")
    assert (tmp_path / "labels" / "a.txt").read_text() == "0 0.5 0.5 0.1 0.1\n"
    assert result.save_txt(tmp_path / "labels", exist_ok=True).read_text() != "0 0.5 0.5 0.1 0.1\n"


@pytest.mark.parametrize("source", ["detect/x", ".", "detect/*/*.png", "detect/x/b.png", "list.txt"])
def test_a_run_folder_from_which_pictures_are_read_is_refused_at_once(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "detect/x/a.png", "detect/x/b.png"):
        save(tmp_path / name, picture())
    (tmp_path / "list.txt").write_text("a.png\ndetect/x/b.png\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    words = ["model=trees-detect-n", f"source={source}", "project=.", "name=x", "exist_ok=true", "conf=0", "imgsz=32", "device=cpu"]
    assert main(["predict", *words]) == 2
    assert "name: expected a run folder from which no picture is read" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.suffix == ".png"} == before


def test_what_a_stream_brings_from_the_run_folder_is_refused_too(tmp_path):
    path = save(tmp_path / "a.png", picture())
    before = Path(path).read_bytes()
    with pytest.raises(UsageError, match="expected a run folder from which no picture is read"):
        list(write_results(predict(RedFinder(), CARD, iter([path])), tmp_path, Kept(exist_ok=True)))
    assert Path(path).read_bytes() == before


def test_an_earlier_run_is_written_over_where_that_was_asked_for(tmp_path):
    source = save(tmp_path / "a.png", picture())
    common = {"model": "trees-detect-n", "source": source, "project": str(tmp_path), "imgsz": 32, "device": "cpu", "save_txt": True}
    for conf in (0.0, 0.99):
        folder, results = predict_files(PredictConfig(exist_ok=True, conf=conf, **common))
        assert len(list(results)) == 1
        assert bool((folder / "labels" / "a.txt").read_text()) == (conf == 0)
    assert [path.name for path in (tmp_path / "detect").iterdir()] == ["predict"]
    with Image.open(folder / "a.png") as drawn:
        assert drawn.size == (120, 90)

"""Results one by one hold no more memory at the end than near the beginning: a short form of bench/stream.py."""

import weakref

import numpy as np
import pytest
from PIL import Image

from pellucid.predict import predict
from pellucid.predict.files import Kept, write_results
from tests.decode.fakes import RedFinder
from tests.predict.test_predict import CARD
from tests.test_scripts import script

FRAMES, PICTURES, SIDE = 60, 200, 512


@pytest.fixture(scope="module")
def stream():
    return script("bench/stream.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("pictures")
    Image.fromarray(np.full((SIDE, SIDE, 3), 90, np.uint8)).save(place / "0.jpg")
    for number in range(1, PICTURES):
        (place / f"{number}.jpg").hardlink_to(place / "0.jpg")
    return place


def test_a_folder_in_constant_memory(stream, folder):
    count, first, last = stream.watch(predict(RedFinder(), CARD, folder, imgsz=32), PICTURES // 10)
    assert count == PICTURES
    assert last <= first * stream.MOST


def test_whoever_keeps_the_results_is_found_out(stream, folder):
    kept = []
    _, first, last = stream.watch((kept.append(result) or result for result in predict(RedFinder(), CARD, folder, imgsz=32)), 20)
    assert last - first > 0.8 * (PICTURES - 20) * SIDE * SIDE * 3


@pytest.mark.parametrize("source", ["video", "folder"])
def test_pictures_that_were_looked_at_are_let_go(source, stream, folder, tmp_path):
    place = stream.make_video(tmp_path / "clip.mp4", FRAMES, (96, 128)) if source == "video" else folder
    (tmp_path / "out").mkdir()
    images, most = [], 0
    for result in write_results(predict(RedFinder(), CARD, place, imgsz=32, batch=4), tmp_path / "out", Kept(save=True, save_json=True)):
        images.append(weakref.ref(result.image))
        most = max(most, sum(image() is not None for image in images))
    assert len(images) == (FRAMES if source == "video" else PICTURES)
    assert 1 <= most <= 12

"""Large pictures looked at tile by tile."""

import numpy as np
import pytest
import torch
from PIL import Image

from pellucid.cli import main
from pellucid.data.module import DataModule
from pellucid.data.readers import open_dataset
from pellucid.data.tiles import EDGE
from pellucid.evaluate import evaluate_tiles
from pellucid.predict import predict
from pellucid.tasks import TASKS
from pellucid.zoo import Card
from tests.data.make import text
from tests.decode.fakes import RedFinder

CARD = Card("detect", "n", ("blue", "red"), (4, 9), 128)
BOXES = [(90, 30, 130, 60), (215, 100, 250, 160)]


def picture(box, size=(300, 180)):
    image = np.full((size[1], size[0], 3), 90, np.uint8)
    image[box[1] : box[3], box[0] : box[2]] = (255, 0, 0)
    return image


@pytest.mark.parametrize("batch", [1, 3, 16])
@pytest.mark.parametrize("path", ["e2e", "nms"])
def test_the_object_is_reported_once_where_it_is(batch, path):
    model = RedFinder()
    results = list(predict(model, CARD, [picture(box) for box in BOXES], tile=128, overlap=64, batch=batch, path=path))
    assert sum(model.batches) == 2 * 4 * 2
    assert max(model.batches) == min(batch, 8)
    assert len(results) == 2
    for result, box in zip(results, BOXES, strict=True):
        assert len(result) == 1
        torch.testing.assert_close(result.boxes.xyxy, torch.tensor([box]).float(), atol=0.01, rtol=0)
        assert result.orig_shape == (180, 300)
        assert set(result.speed) == {"pre", "network", "post"}


def test_tiles_share_a_third_where_nothing_is_said():
    model = RedFinder()
    (result,) = predict(model, CARD, picture(BOXES[0]), tile=64)
    assert sum(model.batches) == 7 * 4  # steps of 43 over 300 x 180
    assert len(result) >= 1


def test_a_small_picture_is_one_tile():
    small = picture((10, 10, 40, 30), (60, 50))
    (tiled,) = predict(RedFinder(), CARD, small, tile=128, overlap=64)
    (plain,) = predict(RedFinder(), CARD, small)
    assert torch.equal(tiled.boxes.xyxy, plain.boxes.xyxy)
    assert len(tiled) == 1


def test_the_most_objects_of_each_tile_are_kept_as_where_they_are_scored(tmp_path):
    first, second = (picture(box) for box in BOXES)
    both = np.where((second == 90).all(-1, keepdims=True), first, second)
    (whole,) = predict(RedFinder(), CARD, both, tile=128, overlap=64, conf=0.01)
    (one,) = predict(RedFinder(), CARD, both, tile=128, overlap=64, conf=0.01, max_det=1)
    assert len(whole) > 1  # one of a tile at most
    assert torch.equal(one.boxes.xyxy, whole.boxes.xyxy)

    (tmp_path / "val/images").mkdir(parents=True)
    Image.fromarray(both).save(tmp_path / "val/images/0.png")
    rows = [f"{x1} {y1} {x2} {y1} {x2} {y2} {x1} {y2} red 0\n" for x1, y1, x2, y2 in BOXES]
    text(tmp_path / "val/labelTxt/0.txt", "".join(rows))
    text(tmp_path / "classes.txt", "blue\nred\n")
    task = TASKS["detect"]()
    data = DataModule(open_dataset(tmp_path, task.needs, ("val",)), task, imgsz=128, batch=4, workers=0)
    scores = evaluate_tiles(RedFinder(), data, "val", task, CARD.names, 128, 64, paths=("e2e",), conf=0.01, max_det=1)
    torch.testing.assert_close(scores.paths["e2e"].coco.state()[0].shapes["boxes"].bounds(), one.boxes.xyxy)


@pytest.mark.parametrize("verb", ["predict", "val"])
def test_the_help_says_what_a_tile_needs(verb, capsys):
    assert main([verb, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Most objects kept in an image; with tile=, in each tile." in said
    assert f"at least the size of your objects and {2 * EDGE + 1:.0f} more" in said

"""Large pictures scored tile by tile and whole."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from pellucid.config import PredictConfig, TilesConfig, ValConfig
from pellucid.data.module import DataModule
from pellucid.data.readers import open_dataset
from pellucid.errors import UsageError
from pellucid.evaluate import evaluate, evaluate_tiles
from pellucid.tasks import TASKS
from pellucid.types import Dense, Output
from tests.data.make import text
from tests.decode.fakes import RedFinder

RED = [(80, 20, 130, 50), (150, 90, 170, 140), None, (10, 10, 60, 40), (110, 110, 160, 160)]  # on pictures of 300 x 180


class UprightFinder(RedFinder):
    """Finds the red rectangle as a rotated box of angle 0."""

    def forward(self, images):
        plain = super().forward(images)

        def turned(dense):
            return Dense({**dense.outputs, "angle": torch.zeros(*dense.outputs["cls"].shape[:2], 1)}, dense.points, dense.strides)

        return Output(turned(plain.many), turned(plain.one), {}, plain.size)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("large")
    for number, box in enumerate(RED):
        image = np.full((180, 300, 3), 90, np.uint8)
        row = ""
        if box:
            x1, y1, x2, y2 = box
            image[y1:y2, x1:x2] = (255, 0, 0)
            row = f"{x1} {y1} {x2} {y1} {x2} {y2} {x1} {y2} red 0\n"
        (root / "val/images").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / f"val/images/{number}.png")
        text(root / f"val/labelTxt/{number}.txt", row)
    text(root / "classes.txt", "blue\nred\n")
    return root


@pytest.mark.parametrize(("task", "kind"), [("obb", "obb"), ("detect", "box")])
def test_every_object_is_found_once_in_its_place(folder, task, kind):
    made = TASKS[task]()
    data = DataModule(open_dataset(folder, made.needs, ("val",)), made, imgsz=128, batch=4, workers=0)
    model = UprightFinder() if task == "obb" else RedFinder()
    scores = evaluate_tiles(model, data, "val", made, ("blue", "red"), 128, 64, conf=0.01)
    assert scores.images == 5
    assert sum(model.batches) == 5 * 4 * 2
    assert "tiles of 128 px that share 64" in scores.protocol
    for path in scores.paths.values():
        assert path.metrics[f"{kind}/ap"] == pytest.approx(1.0)
        assert path.metrics[f"tile/{kind}/ap50"] == pytest.approx(1.0)  # parts are ignored regions
        found = path.coco.state()
        assert [len(found[row]) for row in range(5)] == [1, 1, 0, 1, 1]
        for row, box in enumerate(RED):
            if box:
                torch.testing.assert_close(found[row].shapes["boxes"].bounds(), torch.tensor([box]).float(), atol=0.01, rtol=0)
        assert path.confusion.counts.tolist() == [[0, 0, 0], [0, 4, 0], [0, 0, 0]]
        assert len(path.coco.predictions()) == 4
    assert scores.gap == pytest.approx(0)


@pytest.mark.parametrize("whole", [True, False])
def test_a_split_of_empty_label_files_runs_and_has_no_score(tmp_path, whole):
    for number in range(3):
        (tmp_path / "val/images").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (200, 150), (255, 0, 0)).save(tmp_path / f"val/images/{number}.png")
        text(tmp_path / f"val/labelTxt/{number}.txt", "")
    text(tmp_path / "classes.txt", "blue\nred\n")
    task = TASKS["obb"]()
    data = DataModule(open_dataset(tmp_path, task.needs, ("val",)), task, imgsz=128, batch=4, workers=0)
    if whole:
        scores = evaluate(UprightFinder(), data.eval_loader("val"), data.index("val"), task, ("blue", "red"))
    else:
        scores = evaluate_tiles(UprightFinder(), data, "val", task, ("blue", "red"), 128, 64)
    assert scores.notes == ("no ground truth: the scores are undefined",)
    for path in scores.paths.values():
        assert all(math.isnan(value) for value in path.metrics.values())
        assert path.confusion.counts[1, 2] >= 3  # found where nothing is


@pytest.mark.parametrize("config", [PredictConfig, ValConfig])
def test_an_overlap_needs_tiles_and_room(config):
    assert config(tile=640).overlap == 200
    assert [config(tile=tile).overlap for tile in (32, 64, 128, 600)] == [10, 21, 42, 200]
    for wrong in (
        {"overlap": 64},
        {"tile": 128, "overlap": 200},
        {"tile": 128, "overlap": 128},
        {"tile": 8, "overlap": 0},
        {"tile": 128, "overlap": -1},
    ):
        with pytest.raises(UsageError, match=r"overlap|tile"):
            config(**wrong)
    with pytest.raises(UsageError, match="visible"):
        TilesConfig(visible=1.5)


def test_tiles_are_scored_by_one_process(folder):
    task = TASKS["obb"]()
    data = DataModule(open_dataset(folder, task.needs, ("val",)), task, imgsz=128, batch=4, workers=0)
    with pytest.raises(UsageError, match="gather: expected none beside tiles"):
        evaluate_tiles(UprightFinder(), data, "val", task, ("blue", "red"), 128, 64, gather=lambda state: [state])

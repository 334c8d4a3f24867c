"""Pose from files to scores: real oddities of keypoint sets, backgrounds, half precision."""

import json
import math
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pellucid.config import TrainConfig
from pellucid.data.collate import targets
from pellucid.errors import PellucidWarning
from pellucid.tasks import TASKS
from pellucid.train.run import train
from pellucid.train.step import TrainStep
from pellucid.types import Batch, ImageMeta
from pellucid.zoo import Card, create
from tests.tasks.test_pose import nobody, people
from tests.train.conftest import make_kind

SIDE, K = 64, 5


def write_coco(folder, names):
    """Squares with five points: some hidden or absent, an object without a labelled point, a crowd, no area anywhere, an empty picture."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 4)):
        (folder / split).mkdir(parents=True)
        images, annotations = [], []
        for number in range(count):
            image = draw.integers(0, 80, (SIDE, SIDE, 3), dtype=np.uint8)
            images.append({"id": 10 + number, "file_name": f"{number}.png", "height": SIDE, "width": SIDE})
            for which in range(0 if number == 1 else 1 + number % 2):
                side = int(draw.integers(20, 30))
                x, y = (int(v) for v in draw.integers(0, SIDE - side, 2))
                image[y : y + side, x : x + side, which] = 255
                corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]]) * side + (x, y)
                seen = np.array([2, 2, 1, 0, 2]) * (number != 3)
                points = np.concatenate((corners, seen[:, None]), 1) * (seen[:, None] > 0)
                own = {"bbox": [x, y, side, side], "keypoints": points.ravel().tolist(), "num_keypoints": int((seen > 0).sum())}
                annotations.append({"image_id": 10 + number, "category_id": 3, "iscrowd": int(number == 2), **own})
            Image.fromarray(image).save(folder / split / f"{number}.png")
        numbered = [{"id": i, **annotation} for i, annotation in enumerate(annotations, 1)]
        category = {"id": 3, "name": "square", "keypoints": names, "skeleton": [[1, 2], [2, 3], [3, 4], [4, 1]]}
        (folder / "annotations").mkdir(exist_ok=True)
        document = {"images": images, "annotations": numbered, "categories": [category]}
        (folder / "annotations" / f"person_keypoints_{split}.json").write_text(json.dumps(document))
    return folder


def run(data, project, **changes):
    plain = {"epochs": 1, "batch": 4, "accumulate": 1, "imgsz": SIDE, "workers": 0, "device": "cpu", "plots": False}
    return train(TrainConfig(model="pose-n", data=str(data), project=str(project), **{**plain, **changes}))


def test_a_run_on_real_oddities_scores_as_pycocotools_does(tmp_path):
    """Without flip pairs nothing is mirrored, and that is said once; the points are five, so the sigmas are the stated default."""
    folder = write_coco(tmp_path / "data", ["a", "b", "c", "d", "e"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PellucidWarning)
        result = run(folder, tmp_path, epochs=2, fliplr=1.0)
    assert sum("not mirrored" in str(warning.message) for warning in caught) == 1
    path = result.scores.paths["e2e"]
    assert [name for name in path.metrics if name.endswith("/ap")] == ["pose/ap", "box/ap"]
    assert all(math.isfinite(path.metrics[name]) for name in ("pose/ap", "box/ap"))
    assert result.to_dict()["best"]["metric"] == "e2e/pose/ap"
    assert "OKS sigma 0.2 for each of 5 points" in result.scores.protocol
    assert result.scores.notes == ("OKS takes the area of the box for 3 of 3 objects, which state none",)
    assert path.per_class[0]["n"] == 1  # of four: one in a crowd, two without a labelled point
    truth = COCO(str(path.coco.write_ground_truth(tmp_path / "truth.json")))
    tool = COCOeval(truth, truth.loadRes(str(path.coco.write(tmp_path / "found.json"))), "keypoints")
    tool.params.kpt_oks_sigmas = np.full(K, 0.2)
    tool.evaluate()
    tool.accumulate()
    tool.summarize()
    assert path.metrics["pose/ap"] == pytest.approx(tool.stats[0], abs=1e-6)
    assert len(path.coco.predictions()) > 10


def test_a_set_without_objects_trains(tmp_path):
    result = run(make_kind(tmp_path / "data", "keypoints", train=4, val=2, objects=False), tmp_path)
    assert result.to_dict()["best"]["value"] is None
    assert "no ground truth" in result.scores.notes[0]


@pytest.mark.parametrize("precision", ["bf16", "16"])
@pytest.mark.parametrize("told", [{}, {"rle_floor": "sigma", "rle_form": "single"}, {"rle": 0.0}, {"points": 4, "dims": 2}])
def test_a_step_in_half_precision_keeps_weights_whole(precision, told):
    told = {"points": K, **told}
    card = Card("pose", "n", ("a",), (0,), task_args=told)
    config = TrainConfig(model="pose-n", data="none", batch=2, accumulate=1, optimizer="adamw")
    step = TrainStep(create(card, 0), TASKS["pose"](**told), config, card.nc, precision, 100)
    k = told["points"]
    taught = targets([people(k), nobody(k)], 128, step.criterion.task.targets)
    images = torch.randint(0, 256, (2, 3, 128, 128), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    batch = Batch(images, taught, tuple(ImageMeta(i, i, "", 128, 128) for i in range(2)))
    before = {name: value.clone() for name, value in step.detector.named_parameters()}
    for _ in range(3):
        step(batch)
    assert step.skipped <= 2  # a residual of 100 sigmas teaches sigma by its square: the first scale may be too large
    assert step.scaler.scale >= 128 or precision == "bf16"
    after = dict(step.detector.named_parameters())
    assert all(value.dtype == torch.float32 and torch.isfinite(value).all() for value in after.values())
    assert any(not torch.equal(before[name], value) for name, value in after.items() if "last.points" in name)
    assert ("shared.flow.scale.0.0.weight" in after) == ("rle" not in told)

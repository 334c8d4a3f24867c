"""Segmentation end to end on the CPU: real annotations' oddities, images without objects, half precision, and one score everywhere."""

import json
import math
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pellucid.augment.presets import OFF
from pellucid.config import TrainConfig
from pellucid.data.collate import targets
from pellucid.data.readers import read_dataset
from pellucid.errors import PellucidWarning
from pellucid.geometry import Boxes, Polygons, Rle
from pellucid.tasks import TASKS
from pellucid.train.run import train
from pellucid.train.step import TrainStep
from pellucid.types import Batch, ImageMeta, Instances
from pellucid.zoo import Card, create
from tests.train.conftest import make_kind

SIDE = 64
FLAT = {"bbox": [29.65, 38.33, 1.03, 0.0], "area": 0.0, "segmentation": [[29.65, 38.33, 30.68, 38.33, 29.65, 38.33]]}


def write_coco(folder, train=8, val=3, objects=True):
    """Discs of two classes: as outlines, a ring as a code, a crowd as a code, a flat annotation; every fourth image is empty."""
    draws = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    for split, count in (("train", train), ("val", val)):
        (folder / split).mkdir(parents=True)
        images, annotations = [], []
        for number in range(count):
            image = draws.integers(0, 70, (SIDE, SIDE, 3), dtype=np.uint8)
            images.append({"id": 10 + number, "file_name": f"{number}.png", "height": SIDE, "width": SIDE})
            for k in range(0 if number % 4 == 3 or not objects else 2):
                radius = draws.uniform(9, 14)
                centre = draws.uniform(radius, 32 - radius, 2) + np.array((0, 32 * k))
                inside = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < radius**2
                image[inside, k] = 255
                outline = centre + radius * np.stack((np.cos(angle), np.sin(angle)), 1)
                found = {"segmentation": [outline.reshape(-1).round(2).tolist()]}
                if number % 4 == 1:
                    inside &= (x - centre[0]) ** 2 + (y - centre[1]) ** 2 > 9
                    found = {"segmentation": Rle.of_masks(torch.from_numpy(inside[None])).coco()[0]}
                annotations.append({"image_id": 10 + number, "category_id": 3 - k, "iscrowd": 0, "area": float(inside.sum()), **found})
                low, high = outline.min(0), outline.max(0)
                annotations[-1]["bbox"] = [*low.round(2).tolist(), *(high - low).round(2).tolist()]
            if objects and number == 0:
                crowd = Rle.of_masks(torch.from_numpy(((x > 40) & (y < 20))[None])).coco()[0]
                annotations.append(
                    {"image_id": 10, "category_id": 3, "iscrowd": 1, "area": 400.0, "bbox": [40, 0, 24, 20], "segmentation": crowd}
                )
                annotations.append({"image_id": 10, "category_id": 3, "iscrowd": 0, **FLAT})
            Image.fromarray(image).save(folder / split / f"{number}.png")
        numbered = [{"id": i, **annotation} for i, annotation in enumerate(annotations, 1)]
        document = {"images": images, "annotations": numbered, "categories": [{"id": 2, "name": "green"}, {"id": 3, "name": "red"}]}
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(document))
    return folder


def run(data, project, **changes):
    plain = {"epochs": 1, "batch": 4, "accumulate": 1, "imgsz": SIDE, "workers": 0, "device": "cpu", "plots": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PellucidWarning)  # of the flat annotation, which the test of reading looks at
        return train(TrainConfig(model="segment-n", data=str(data), project=str(project), **{**plain, **changes}))


@pytest.fixture(scope="module")
def discs(tmp_path_factory):
    return write_coco(tmp_path_factory.mktemp("discs"))


def test_an_annotation_of_no_height_is_dropped_and_counted(discs):
    data = read_dataset(discs, ("boxes", "polygons"))
    index = data.splits["train"]
    assert len(index.labels) == 2 * 6 + 1  # with the crowd, without the flat one
    assert sum(finding.count for finding in index.findings if finding.code != "ignored") == 1
    assert index.ignore.sum() == 1
    for row in range(len(index)):
        polygons = index.instances(row).shapes["polygons"]
        assert (polygons.area() > 50).all()
    ring = index.instances(1).shapes["polygons"]
    assert [len(ring.parts(i)) for i in range(2)] == [2, 2]


def test_a_run_on_real_oddities_scores_as_pycocotools_does(discs, tmp_path):
    result = run(discs, tmp_path, epochs=2, copy_paste=0.5)
    metrics = result.scores.paths["e2e"].metrics
    assert [name for name in metrics if name.endswith("/ap")] == ["mask/ap", "box/ap"]
    assert all(math.isfinite(metrics[name]) for name in ("mask/ap", "box/ap"))
    assert result.to_dict()["best"]["metric"] == "e2e/mask/ap"
    coco = result.scores.paths["e2e"].coco
    truth = COCO(str(coco.write_ground_truth(tmp_path / "truth.json")))
    found = truth.loadRes(str(coco.write(tmp_path / "found.json")))
    for kind, iou_type in (("mask", "segm"), ("box", "bbox")):
        tool = COCOeval(truth, found, iou_type)
        tool.evaluate()
        tool.accumulate()
        tool.summarize()
        assert metrics[f"{kind}/ap"] == pytest.approx(tool.stats[0], abs=1e-6)
    assert all(record["segmentation"]["size"] == [SIDE, SIDE] for record in coco.predictions())
    assert len(coco.predictions()) > 10


def test_a_set_without_objects_trains(tmp_path):
    result = run(make_kind(tmp_path / "data", "polygons", train=4, val=2, objects=False), tmp_path)
    assert result.to_dict()["best"]["value"] is None
    assert "no ground truth" in result.scores.notes[0]


def make_step(precision, **settings):
    card = Card("segment", "n", ("a", "b"), (0, 1))
    config = TrainConfig(model="segment-n", data="none", batch=2, accumulate=1, optimizer="adamw")
    step = TrainStep(create(card, 0), TASKS["segment"](**settings), config, card.nc, precision, 100)
    square = Polygons.from_parts([[[8, 8, 40, 8, 40, 30, 8, 30]]])
    objects = Instances(torch.tensor([1]), {"boxes": Boxes(square.bounds()), "polygons": square})
    taught = targets([objects, objects[:0]], SIDE, step.criterion.task.targets)  # the second image is empty
    images = torch.randint(0, 256, (2, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return step, Batch(images, taught, tuple(ImageMeta(i, i, "", SIDE, SIDE) for i in range(2)))


@pytest.mark.parametrize("settings", [{}, {"mask_weight": "quality", "mask_cells": "centre"}, {"semantic": 0.0}, {"proto_detach": False}])
def test_a_step_in_half_precision_keeps_weights_whole(settings):
    step, batch = make_step("bf16", **settings)
    before = {name: value.clone() for name, value in step.detector.named_parameters()}
    step.forward(batch).backward()
    step.collect()
    step.prepare()
    step.updater.optimizer.step()
    step.conclude()
    losses = step.losses()
    assert all(math.isfinite(value) for value in losses.values())
    assert losses["mask"] > 0
    assert ("semantic" in losses) == ("semantic" not in settings)
    after = dict(step.detector.named_parameters())
    assert {value.dtype for value in after.values()} == {torch.float32}
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert {"shared.prototypes.upsample.weight", "shared.prototypes.last.conv.weight"} <= moved
    assert any(name.startswith("many.stems.1") for name in moved)
    assert any(name.startswith("one.stems.1") for name in moved)
    assert all(torch.isfinite(value).all() for value in after.values())


@pytest.mark.parametrize("detach", [True, False])
def test_who_teaches_the_prototypes(detach):
    """Through the one-to-one loss alone they learn only where they are not detached."""
    step, batch = make_step("32", proto_detach=detach)
    _, one = step.criterion(step.detector(batch.images), batch.targets)
    assert one.sums["mask"] > 0
    one.total().backward()
    grads = [p.grad for p in step.detector.shared.parameters()]
    assert all(grad is None for grad in grads) == detach
    assert step.detector.one.stems[1][0].last["coefficients"].weight.grad.abs().sum() > 0


def test_masks_are_compared_only_where_that_is_asked_for(monkeypatch):
    step, batch = make_step("32")
    output = step.detector(batch.images)
    with_masks, _ = step.criterion(output, batch.targets)
    alone, batch_ = make_step("32", assign_masks=False)
    assert alone.criterion.task.overlap.refine is None
    without, _ = alone.criterion(output, batch_.targets)
    assert with_masks.sums["cls"] != without.sums["cls"]


def test_targets_are_sampled_at_cell_centres():
    """A cell is filled where its centre, not its corner, lies inside: no shift by half a cell."""
    square = Polygons.from_parts([[[8, 9, 40, 9, 40, 31, 8, 31]], [[13, 13, 14, 13, 14, 14, 13, 14]]])
    packed = TASKS["segment"]().targets(Instances(torch.zeros(2).long(), {"polygons": square}), SIDE)["masks"]
    assert packed.shape == (2, SIDE // 4, SIDE // 32)
    cells = np.unpackbits(packed.numpy(), axis=-1)
    assert [(row.min(), row.max()) for row in cells[0].nonzero()] == [(2, 7), (2, 9)]
    assert cells[1].sum() == 0
    assert TASKS["segment"]().targets(Instances(torch.zeros(0).long(), {"polygons": Polygons.empty()}), SIDE)["masks"].shape == (0, 16, 2)
    assert OFF.copy_paste == 0

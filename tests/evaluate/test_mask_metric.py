"""Mask AP: what is written and rescored by pycocotools is what is printed; holes, parts, crowds, missing areas."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pellucid.data.columns import encode_rings
from pellucid.data.index import Index, IndexBuilder
from pellucid.evaluate import CocoMetric
from pellucid.geometry import Boxes, Masks, Polygons, Rle
from pellucid.types import ImageMeta, Instances, Prediction

HEIGHT, WIDTH = 120, 150
PLACES = {"ap": 0, "ap50": 1, "ap75": 2, "ap_s": 3, "ap_m": 4, "ap_l": 5, "ar100": 8}


def blob(generator: np.random.Generator, centre: np.ndarray, radius: float, corners: int = 14) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    reach = radius * generator.uniform(0.6, 1, corners)
    return (centre + reach[:, None] * np.stack((np.cos(angle), np.sin(angle)), 1)).clip(0, (WIDTH, HEIGHT))


def make_index(seed: int = 0, images: int = 8, objects: int = 7) -> Index:
    """Outlines, objects of two parts, rings with a hole, crowds that came as codes; one image without objects."""
    generator = np.random.default_rng(seed)
    builder = IndexBuilder(Path("/photos"), columns=("polygons",))
    for row in range(images):
        builder.image(f"/photos/{row}.jpg", (HEIGHT, WIDTH), 100 - 3 * row)
        for i in range(0 if row == 2 else objects):
            centre, radius = generator.uniform(10, 110, 2), generator.uniform(8, 45)
            parts = [blob(generator, centre, radius)]
            if i % 3 == 1:
                parts.append(blob(generator, generator.uniform(10, 110, 2), radius / 2))
            holes = [centre + (blob(generator, centre, radius / 4) - centre)] if i % 3 == 2 else []
            shape = Polygons.from_parts([parts], [holes])
            if i == 3:  # as a reader traces a code
                shape = Polygons.from_masks(shape.rasterise(HEIGHT, WIDTH).numpy())
            builder.object(i % 2, shape.bounds()[0].tolist(), i == 3, polygons=encode_rings(shape.parts(0)))
    return builder.build(("cell", "dust"), (4, 2))


def masks_of(truth: torch.Tensor) -> Masks:
    """Predicted masks that are `truth` (n, h, w) exactly: one prototype an object, a cell a pixel."""
    count, height, width = truth.shape
    return Masks.of_prototypes(torch.eye(count), truth * 2.0 - 1, torch.tensor([[0.0, 0, width, height]]).repeat(count, 1), 1)


def star_index(seed: int, images: int = 6, objects: int = 8) -> Index:
    """Thin stars of all sizes in large pictures: a mask is a small part of its box."""
    generator = np.random.default_rng(seed)
    builder = IndexBuilder(Path("/photos"), columns=("polygons",))
    angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    for row in range(images):
        builder.image(f"/photos/{row}.jpg", (400, 440))
        for i in range(objects):
            reach = np.geomspace(20, 200, objects)[i] * generator.uniform(0.7, 1, 16) * np.tile((1, 0.35), 8)
            points = generator.uniform(100, 300, 2) + reach[:, None] * np.stack((np.cos(angle), np.sin(angle)), 1)
            shape = Polygons.from_parts([[points.clip(0, (440, 400))]])
            builder.object(i % 2, shape.bounds()[0].tolist(), polygons=encode_rings(shape.parts(0)))
    return builder.build(("cell", "dust"), (4, 2))


def predict(index: Index, row: int, shift: int = 0, seed: int = 0, copies: int = 1) -> Prediction:
    """The true masks, moved at random by up to `shift` pixels."""
    truth = index.instances(row)
    height, width = index.sizes[row].tolist()
    generator = torch.Generator().manual_seed(seed + row)
    masks = truth.shapes["polygons"].rasterise(height, width).repeat(copies, 1, 1)
    moves = torch.randint(-shift, shift + 1, (len(masks), 2), generator=generator).tolist()
    masks = torch.stack([m.roll(move, (0, 1)) for m, move in zip(masks, moves, strict=True)]) if len(masks) else masks
    scores = torch.rand(len(masks), generator=generator).mul(20).round() / 20
    boxes = Boxes(Polygons.from_masks(masks.numpy()).bounds())
    meta = ImageMeta(row, int(index.ids[row]), "", height, width)
    return Prediction(meta, Instances(truth.labels.repeat(copies), {"boxes": boxes, "masks": masks_of(masks)}, scores))


def rescored(metric: CocoMetric, folder: Path, kind: str, boxes: bool = False) -> np.ndarray:
    """What pycocotools says of the files; it takes the area of a record's box if there is one, so masks come without, unless `boxes`."""
    truth = COCO(str(metric.write_ground_truth(folder / "truth.json")))
    found = json.loads(metric.write(folder / "predictions.json").read_text())
    if kind == "segm" and not boxes:
        found = [{key: value for key, value in record.items() if key != "bbox"} for record in found]
    tool = COCOeval(truth, truth.loadRes(found), kind)
    tool.evaluate()
    tool.accumulate()
    tool.summarize()
    return tool.stats


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_files_rescored_by_pycocotools_give_the_printed_figures(seed, tmp_path):
    index = make_index(seed)
    metric = CocoMetric(index, ("mask", "box"))
    metric.update([predict(index, row, shift=6, seed=seed, copies=3) for row in range(len(index))])
    scores = metric.compute()
    assert 0.2 < scores["mask/ap"] < 0.9
    assert scores["mask/ap"] != scores["box/ap"]
    for kind, iou_type in (("mask", "segm"), ("box", "bbox")):
        stats = rescored(metric, tmp_path, iou_type)
        for name, place in PLACES.items():
            ours = scores[f"{kind}/{name}"]
            assert (np.isnan(ours) and stats[place] == -1) or ours == pytest.approx(stats[place], abs=1e-6), (kind, name)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_size_of_a_found_mask_is_that_of_its_pixels(seed, tmp_path):
    index = star_index(seed)
    metric = CocoMetric(index, ("mask", "box"))
    metric.update([predict(index, row, shift=5, seed=seed, copies=3) for row in range(len(index))])
    scores = metric.compute()
    of_masks, of_boxes = (rescored(metric, tmp_path, "segm", boxes) for boxes in (False, True))
    assert {place for place in range(len(of_masks)) if of_masks[place] != of_boxes[place]} >= {3, 4}  # else this test says nothing
    assert min(of_masks) > 0
    for name, place in PLACES.items():
        assert scores[f"mask/{name}"] == pytest.approx(of_masks[place], abs=1e-6), name
    of_boxes = rescored(metric, tmp_path, "bbox")
    assert scores["box/ap_s"] == pytest.approx(of_boxes[3], abs=1e-6)
    assert scores["box/ap_m"] == pytest.approx(of_boxes[4], abs=1e-6)


def test_perfect_masks_score_one_and_empty_images_are_counted():
    index = make_index()
    metric = CocoMetric(index, ("mask", "box"))
    metric.update([predict(index, row) for row in range(len(index))])
    assert index.class_counts().sum() > 30
    assert metric.compute()["mask/ap"] > 0.97  # outlines are filled by the COCO tool's own rule, half a pixel wider


def crossing(name: str) -> list[tuple[float, float]]:
    """Rings that the COCO tool fills otherwise, or not at all, beside two that it fills alike."""
    square = [(30, 20), (110, 20), (110, 100), (30, 100)]
    inner = [(50, 40), (90, 40), (90, 80), (50, 80)]
    angles = 4 * np.pi * np.arange(5) / 5
    return {
        "star": list(zip(70 + 50 * np.sin(angles), 60 - 50 * np.cos(angles), strict=True)),
        "twice": square * 2,
        "bridged, inner ring the same way": [*square, square[0], *inner, inner[0]],
        "bow-tie": [(30, 20), (110, 100), (110, 20), (30, 100)],
        "plain": square,
    }[name]


@pytest.mark.parametrize("name", ["star", "twice", "bridged, inner ring the same way", "bow-tie", "plain"])
def test_perfect_masks_of_outlines_that_cross_themselves_score_one(name, tmp_path):
    """Perfect are those that training fills; the files say the same to pycocotools."""
    outline = Polygons.from_parts([[crossing(name)]])
    builder = IndexBuilder(Path("/photos"), columns=("polygons",))
    builder.image("/photos/0.jpg", (HEIGHT, WIDTH))
    builder.object(0, outline.bounds()[0].tolist(), polygons=encode_rings(outline.parts(0)))
    index = builder.build(("thing",), (1,))
    masks = Rle.of_masks(outline.rasterise(HEIGHT, WIDTH))
    assert masks.areas().item() > 2500
    found = Instances(torch.tensor([0]), {"boxes": Boxes(outline.bounds()), "masks": masks}, torch.tensor([0.9]))
    metric = CocoMetric(index, ("mask", "box"))
    metric.update([Prediction(ImageMeta(0, 0, "", HEIGHT, WIDTH), found)])
    assert metric.compute()["mask/ap"] == pytest.approx(1, abs=1e-9)
    assert rescored(metric, tmp_path, "segm")[0] == pytest.approx(1, abs=1e-9)


def test_ground_truth_keeps_the_form_it_had():
    index = make_index()
    metric = CocoMetric(index, ("mask",))
    metric.update([predict(index, 0)])
    forms = [a["segmentation"] for a in metric.ground_truth()["annotations"]]
    assert [len(form) if isinstance(form, list) else "code" for form in forms[:3]] == [1, 2, "code"]
    assert isinstance(forms[3], list)  # a code without a hole: its outline is filled alike
    outline = index.instances(0).shapes["polygons"].parts(0)[0]
    assert forms[0][0] == outline.reshape(-1).astype(float).round(3).tolist()
    assert [a["iscrowd"] for a in metric.ground_truth()["annotations"]] == [0, 0, 0, 1, 0, 0, 0]


def test_the_area_is_the_masks_where_none_is_stated():
    index = make_index()
    metric = CocoMetric(index, ("mask",))
    metric.update([predict(index, 0)])
    filled = index.instances(0).shapes["polygons"].rasterise(HEIGHT, WIDTH).flatten(1).sum(1)
    assert [a["area"] for a in metric.ground_truth()["annotations"]] == filled.tolist()
    stated = replace(index.columns["polygons"], values=np.full(len(index.labels), 77.0), start=np.arange(len(index.labels) + 1))
    metric = CocoMetric(replace(index, columns={**index.columns, "area": stated}), ("mask",))
    metric.update([predict(index, 0)])
    assert {a["area"] for a in metric.ground_truth()["annotations"]} == {77}


def test_predictions_are_held_as_codes_and_written_as_such():
    index = make_index()
    metric = CocoMetric(index, ("mask", "box"))
    metric.update([predict(index, row, 2) for row in (0, 1)])
    assert all(isinstance(found.shapes["masks"], Rle) for found in metric.state().values())
    record = json.loads(json.dumps(metric.predictions()))[0]
    assert set(record) == {"image_id", "category_id", "score", "bbox", "segmentation"}
    assert record["segmentation"]["size"] == [HEIGHT, WIDTH]
    again = CocoMetric(index, ("mask", "box"))
    again.merge([metric.state()])
    assert again.compute() == pytest.approx(metric.compute(), nan_ok=True)


def test_a_crowd_absorbs_any_number_of_masks():
    square = np.array([[0.0, 0], [80, 0], [80, 80], [0, 80]])
    builder = IndexBuilder(Path("/photos"), columns=("polygons",))
    builder.image("/photos/a.jpg", (HEIGHT, WIDTH))
    builder.object(0, [0, 0, 80, 80], True, polygons=encode_rings([square]))
    builder.object(0, [100, 90, 120, 110], polygons=encode_rings([square / 4 + (100, 90)]))
    index = builder.build(("a",), (1,))
    masks = torch.zeros(3, HEIGHT, WIDTH, dtype=torch.bool)
    masks[0, 5:30, 5:30] = masks[1, 40:70, 10:60] = masks[2, 90:110, 100:120] = True
    shapes = {"boxes": Boxes(Polygons.from_masks(masks.numpy()).bounds()), "masks": masks_of(masks)}
    found = Instances(torch.zeros(3, dtype=torch.int64), shapes)
    metric = CocoMetric(index, ("mask", "box"))
    metric.update([Prediction(ImageMeta(0, 0, "", HEIGHT, WIDTH), replace(found, scores=torch.tensor([0.9, 0.8, 0.7])))])
    scores = metric.compute()
    assert scores["mask/ap"] == pytest.approx(1)
    assert scores["box/ap"] == pytest.approx(1)


def test_no_ground_truth_is_undefined():
    index = make_index(images=3, objects=0)
    metric = CocoMetric(index, ("mask", "box"))
    metric.update([predict(index, row) for row in range(3)])
    assert all(np.isnan(value) for value in metric.compute().values())
    assert len(metric.compute()) == 14


def test_many_images_of_many_objects_are_scored_in_seconds():
    index = make_index(images=6, objects=80)
    metric = CocoMetric(index, ("mask", "box"))
    found = [predict(index, row, shift=3, copies=2) for row in range(6)]
    start = time.perf_counter()
    metric.update(found)
    metric.compute()
    assert len(metric.predictions()) == 5 * 160
    assert time.perf_counter() - start < 20

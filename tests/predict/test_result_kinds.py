"""Masks, keypoints and rotated boxes of a result: views, JSON, COCO, and label rows that the YOLO reader reads back."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools import mask as coco_mask

from pellucid.data.readers import read_dataset
from pellucid.geometry import Boxes
from pellucid.geometry.keypoints import Keypoints
from pellucid.geometry.masks import Masks
from pellucid.geometry.polygons import Polygons
from pellucid.geometry.rboxes import RBoxes
from pellucid.results import Result
from pellucid.tasks import TASKS
from pellucid.types import ImageMeta, Instances

SIZE = (96, 128)  # height, width
SCORES = torch.tensor([0.9, 0.4])


def result(**shapes):
    objects = Instances(torch.tensor([1, 0]), shapes, SCORES)
    return Result(
        ImageMeta(5, 77, "photos/cup.png", *SIZE), objects, ("plate", "cup"), (3, 90), Path("cup.png"), np.zeros((*SIZE, 3), np.uint8)
    )


def discs():
    """Two masks (96, 128): two discs apart, one of them with a hole; and a disc cut by the frame."""
    y, x = np.mgrid[:96, :128] + 0.5
    first = (np.hypot(x - 30, y - 30) < 18) & (np.hypot(x - 30, y - 30) > 7) | (np.hypot(x - 80, y - 60) < 15)
    return np.stack((first, np.hypot(x - 120, y - 10) < 20))


def polygons():
    return Polygons.from_masks(list(discs()))


def masks():
    """The discs as a network gives them: logits on a quarter grid."""
    grid = torch.from_numpy(discs().reshape(2, 24, 4, 32, 4).mean((2, 4))).float() * 2 - 1
    return Masks.of_prototypes(torch.eye(2), grid, polygons().bounds())


def iou(a, b):
    return float((a & b).sum() / (a | b).sum())


def test_views_are_one_line():
    corners = torch.tensor([[60.0, 50, 40, 20, 0.3], [20, 20, 10, 5, 0.0]])
    found = result(boxes=Boxes(polygons().bounds()), masks=masks(), keypoints=Keypoints(torch.ones(2, 5, 3)))
    assert repr(found.boxes) == "BoxesView(2, 128x96)"
    assert repr(found.masks) == str(found.masks) == "MasksView(2, 128x96)"
    assert repr(found.keypoints) == "KeypointsView(2 of 5 points, 128x96)"
    assert repr(result(rboxes=RBoxes(corners)).rboxes) == "RBoxesView(2, 128x96)"
    assert repr(found[:0].masks) == "MasksView(0, 128x96)"


@pytest.mark.filterwarnings("ignore:.*__array__ implementation:DeprecationWarning")  # pycocotools under numpy 2
@pytest.mark.parametrize("make", [polygons, masks])
def test_masks(make):
    found = result(boxes=Boxes(polygons().bounds()), masks=make())
    view = found.masks
    assert len(view) == 2
    assert view.data.shape == (2, *SIZE)
    assert view.data.dtype == torch.bool
    assert all(iou(mask, truth) > 0.9 for mask, truth in zip(view.data.numpy(), discs(), strict=True))
    assert [len(rings) for rings in view.xy] == [3, 1]
    again = Polygons.from_rings(view.xy).rasterise(*SIZE)
    assert torch.equal(again, view.data)
    torch.testing.assert_close(torch.tensor(view.xyn[1][0]) * torch.tensor([128, 96]), torch.tensor(view.xy[1][0]), check_dtype=False)
    codes = view.rle()
    assert all(np.array_equal(coco_mask.decode(code), mask) for code, mask in zip(codes, view.data.numpy(), strict=True))
    assert found.to_coco()[1]["segmentation"] == codes[1]
    assert found.to_coco()[0]["bbox"][0] == pytest.approx(12, abs=1)
    rings = json.loads(found.to_json())["objects"][0]["polygons"]
    assert len(rings) == 3
    assert all(len(ring) % 2 == 0 for ring in rings)
    assert len(found[1].masks) == 1
    assert found.keypoints is None
    assert found.rboxes is None


def test_keypoints():
    data = torch.tensor([[[10.0, 20, 0.9], [30, 40, 0.2]], [[0, 0, 0.1], [128, 96, 0.7]]])
    found = result(boxes=Boxes(torch.tensor([[5.0, 5, 40, 50], [0, 0, 128, 96]])), keypoints=Keypoints(data, predicted=True))
    view = found.keypoints
    assert torch.equal(view.xy, data[..., :2])
    assert view.xyn[1, 1].tolist() == [1, 1]
    assert view.visible.tolist() == [[True, False], [False, True]]
    assert torch.equal(view.conf, data[..., 2])
    assert found.to_dict()["objects"][0]["keypoints"] == [[10, 20, 0.9], [30, 40, 0.2]]
    assert found.to_coco()[0]["keypoints"] == [10, 20, 0.9, 30, 40, 0.2]
    assert found[[1]].keypoints.visible.tolist() == [[False, True]]
    assert found.masks is None


def test_rotated_boxes():
    data = torch.tensor([[64.0, 48, 40, 20, math.pi / 2], [30, 30, 20, 10, 0.5]])
    found = result(boxes=Boxes(RBoxes(data).bounds()), rboxes=RBoxes(data))
    view = found.rboxes
    assert torch.equal(view.xywhr, data)
    assert sorted(view.xyxyxyxy[0].round().tolist()) == [[54, 28], [54, 68], [74, 28], [74, 68]]
    assert view.xyxy[0].round().tolist() == [54, 28, 74, 68]
    assert view.conf.tolist() == SCORES.tolist()
    assert view.cls.tolist() == [1, 0]
    assert view.xyxyxyxyn.max() < 1
    fields = found.to_dict()["objects"][0]
    assert fields["rbox"] == [64, 48, 40, 20, round(math.pi / 2, 6)]
    assert np.allclose(np.sort(np.array(fields["corners"]), 0), [[54, 28], [54, 28], [74, 68], [74, 68]], atol=1e-3)
    assert len(found.to_coco()[0]["poly"]) == 8
    only = result(rboxes=RBoxes(data))  # without boxes of their own
    assert only.boxes.xyxy[0].round().tolist() == [54, 28, 74, 68]


def read_back(found, tmp_path, needs, yaml=""):
    for split in ("train", "val"):
        (tmp_path / "images" / split).mkdir(parents=True)
        Image.new("RGB", SIZE[::-1]).save(tmp_path / "images" / split / "cup.png")
        found.save_txt(tmp_path / "labels" / split)
    (tmp_path / "data.yaml").write_text(f"names: {{3: plate, 90: cup}}\ntrain: images/train\nval: images/val\n{yaml}")
    data = read_dataset(tmp_path, ("boxes", needs))
    assert not data.all_findings(), data.all_findings()
    objects = data.splits["val"].instances(0)
    assert objects.labels.tolist() == [1, 0]
    return objects.shapes[needs]


def test_every_part_and_hole_of_a_mask_survives_a_label_row(tmp_path):
    found = result(boxes=Boxes(polygons().bounds()), masks=masks())
    shape = read_back(found, tmp_path, "polygons")
    assert torch.equal(shape.rasterise(*SIZE), found.masks.data)
    assert np.abs(shape.area().numpy() - found.masks.data.sum((1, 2)).numpy()).max() < 0.1


def test_keypoints_survive_a_label_row(tmp_path):
    data = torch.tensor([[[10.0, 20, 2], [30, 40, 1], [0, 0, 0]], [[0.25, 0.5, 2], [127.5, 95.25, 2], [3, 4, 2]]])
    boxes = Boxes(torch.tensor([[5.0, 5, 40, 50], [0, 0, 128, 96]]))
    shape = read_back(result(boxes=boxes, keypoints=Keypoints(data)), tmp_path, "keypoints", "kpt_shape: [3, 3]\nflip_idx: [1, 0, 2]\n")
    torch.testing.assert_close(shape.data, data, atol=1e-3, rtol=0)
    assert shape.flip == (1, 0, 2)


@pytest.mark.parametrize("dims", [2, 3])
def test_predicted_keypoints_survive_a_label_row_of_their_data(tmp_path, dims):
    """As the pose task finishes them; without visibility every point is sure, and a row has pairs."""
    task = TASKS["pose"](points=3, dims=dims)
    data = torch.tensor([[[10.0, 20, 0.9], [30, 40, 0.8], [7, 9, 0.7]], [[0.25, 0.5, 0.9], [127.5, 95.25, 0.6], [3, 4, 0.1]]])
    if dims == 2:
        data[..., 2] = 1
    found = result(**task.finish({"boxes": torch.tensor([[5.0, 5, 40, 50], [0, 0, 128, 96]]), "keypoints": data}, {}))
    row = found.save_txt(tmp_path / "row.txt").read_text().splitlines()[0]
    assert len(row.split()) == 5 + 3 * dims
    shape = read_back(found[[0, 1]], tmp_path, "keypoints", f"kpt_shape: [3, {dims}]\n")
    assert shape.dims == dims
    shown = data[..., 2] > 0.5
    torch.testing.assert_close(shape.data[..., :2][shown], data[..., :2][shown], atol=1e-3, rtol=0)
    assert torch.equal(shape.data[..., 2], 2.0 * shown)
    (tmp_path / "again").mkdir()
    labelled = Keypoints(torch.where(shown[..., None], torch.cat((data[..., :2], 2.0 * shown[..., None]), -1), 0.0), dims=dims)
    again = read_back(
        result(boxes=found.instances.shapes["boxes"], keypoints=labelled), tmp_path / "again", "keypoints", f"kpt_shape: [3, {dims}]\n"
    )
    torch.testing.assert_close(again.data, labelled.data, atol=1e-3, rtol=0)


def test_rotated_boxes_survive_a_label_row(tmp_path):
    data = torch.tensor([[64.0, 48, 40, 20, 1.2], [10, 30, 30, 10, -0.5]])
    shape = read_back(result(rboxes=RBoxes(data)), tmp_path, "rboxes")
    torch.testing.assert_close(shape.data, data, atol=1e-3, rtol=1e-4)


def test_the_score_comes_last(tmp_path):
    found = result(boxes=Boxes(polygons().bounds()), masks=masks())
    plain, scored = (found.save_txt(tmp_path / f"{on}.txt", save_conf=on).read_text().splitlines() for on in (False, True))
    assert [b.removeprefix(a) for a, b in zip(plain, scored, strict=True)] == [" 0.900000", " 0.400000"]


def test_an_empty_mask_and_no_object():
    none = Polygons.from_rings([[], []])
    found = result(boxes=Boxes(torch.zeros(2, 4)), masks=none)
    assert not found.masks.data.any()
    assert found.to_dict()["objects"][0]["polygons"] == []
    empty = found[[]]
    assert empty.masks.xy == []
    assert empty.masks.rle() == []
    assert empty.to_coco() == []


def test_an_empty_mask_gives_no_row(tmp_path):
    shapes = Polygons.from_rings([[], [np.array([[1.0, 1], [9, 1], [9, 9]])]])
    text = result(boxes=Boxes(shapes.bounds()), masks=shapes).save_txt(tmp_path / "a.txt").read_text()
    assert [line.split()[0] for line in text.splitlines()] == ["3"]

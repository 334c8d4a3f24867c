"""Results in the forms of other programs, and COCO records that give the same results again."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pellucid.errors import DataError, UsageError
from pellucid.geometry import Boxes
from pellucid.geometry.keypoints import Keypoints
from pellucid.geometry.rboxes import RBoxes
from pellucid.geometry.rle import Rle
from pellucid.results import Result
from tests.predict.test_result_kinds import SIZE, discs, masks, polygons, result

NAMES = {3: "plate", 90: "cup"}


def points():
    return Keypoints(torch.rand(2, 5, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([128, 96, 1]), predicted=True)


def turned():
    return RBoxes(torch.tensor([[64.1, 48.3, 40.7, 20.9, 1.23456], [30 / 7, 30 / 11, 20 / 3, 10 / 3, -0.5]]))


KINDS = {
    "boxes": lambda: {},
    "masks": lambda: {"masks": masks()},
    "outlines": lambda: {"masks": polygons()},
    "points": lambda: {"keypoints": points()},
    "rotated": lambda: {"rboxes": turned()},
}


def found(kind):
    return result(boxes=Boxes(polygons().bounds() + torch.rand(2, 4, generator=torch.Generator().manual_seed(1))), **KINDS[kind]())


def again(one):
    return Result.from_coco(json.loads(json.dumps(one.to_coco())), NAMES, one.orig_shape, one.path)


def equal(first, second):
    for name in ("xyxy", "conf", "cls"):
        assert torch.equal(getattr(first.boxes, name), getattr(second.boxes, name)), name
    assert [first.names[c] for c in first.boxes.cls] == [second.names[c] for c in second.boxes.cls]
    assert (first.masks is None, first.keypoints is None, first.rboxes is None) == (
        second.masks is None,
        second.keypoints is None,
        second.rboxes is None,
    )
    if first.masks is not None:
        assert torch.equal(first.masks.data, second.masks.data)
        assert first.masks.rle() == second.masks.rle()
    if first.keypoints is not None:
        assert torch.equal(first.keypoints.data, second.keypoints.data)
    if first.rboxes is not None:
        assert torch.equal(first.rboxes.xywhr, second.rboxes.xywhr)


@pytest.mark.parametrize("kind", KINDS)
def test_coco_records_lose_nothing(kind):
    one = found(kind)
    assert len(one) == 2
    back = again(one)
    equal(one, back)
    equal(again(back), one)
    assert again(back).to_coco() == one.to_coco()
    assert back.meta.id == 77
    assert len(back[back.boxes.conf > 0.5]) == 1
    assert len(back[[]].to_coco()) == 0
    assert back.to_dict()["objects"][0].keys() == one.to_dict()["objects"][0].keys()


@given(st.lists(st.floats(0, 20_000, width=32), min_size=4, max_size=4), st.floats(0, 1, width=32))
@settings(max_examples=200, deadline=None)
def test_every_float32_box_and_score_comes_back(sides, score):
    x, y, right, low = sides
    one = result(boxes=Boxes(torch.tensor([[x, y, max(x, right), max(y, low)], [0, 0, 1, 1]])))
    one = replace(one, instances=replace(one.instances, scores=torch.tensor([score, 0.5])))
    back = again(one)
    assert torch.equal(back.boxes.xyxy, one.boxes.xyxy)
    assert torch.equal(back.boxes.conf, one.boxes.conf)


def test_a_picture_without_objects_comes_back():
    back = again(found("boxes")[[]])
    assert len(back) == 0
    assert back.boxes.xyxy.shape == (0, 4)


def test_masks_as_codes_are_masks_in_every_form(tmp_path):
    codes = Rle.of_masks(torch.from_numpy(discs()))
    one, other = result(boxes=Boxes(codes.bounds()), masks=codes), result(boxes=Boxes(codes.bounds()), masks=polygons())
    assert torch.equal(one.masks.data, torch.from_numpy(discs()))
    assert [len(rings) for rings in one.masks.xy] == [3, 1]  # parts and holes
    assert one.to_json() == other.to_json()
    assert one.save_txt(tmp_path / "a.txt").read_text() == other.save_txt(tmp_path / "b.txt").read_text()
    assert (one.plot() != one.image).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"category_id": 4}, "record 1: expected category_id among"),
        ({"bbox": [1, 2, 3]}, "record 1"),
        ({"score": "high"}, "record 1"),
        ({"keypoints": [1, 2, 3]}, "expected keypoints in all 2 of them, got it in 1"),
        ({"rbox": [1, 2]}, "expected rbox in all"),
    ],
)
def test_records_that_do_not_fit_are_named(change, words):
    records = found("boxes").to_coco()
    records[1] = {**records[1], **change}
    with pytest.raises(DataError, match=words):
        Result.from_coco(records, NAMES, SIZE)
    with pytest.raises(DataError, match="expected segmentation as to_coco writes it"):
        Result.from_coco([{**record, "segmentation": {"size": [3, 3], "counts": [4]}} for record in found("boxes").to_coco()], NAMES, SIZE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_frame_has_a_row_for_each_object(kind):
    one = found(kind)
    frame = one.to_df()
    assert len(frame) == 2
    assert list(frame["name"]) == ["cup", "plate"]
    assert list(frame["class"]) == [90, 3]
    assert np.array_equal(frame["score"], one.boxes.conf)
    assert np.array_equal(frame[["x1", "y1", "x2", "y2"]], one.boxes.xyxy)
    if kind == "points":
        assert np.array_equal(frame[["point4_x", "point4_y", "point4_conf"]], one.keypoints.data[:, 4])
    if kind == "rotated":
        assert np.array_equal(frame["rtheta"], one.rboxes.xywhr[:, 4])
    assert list(one[[]].to_df().columns) == list(frame.columns)


@pytest.mark.parametrize("kind", KINDS)
def test_supervision_gets_what_it_asks_for(kind, monkeypatch):
    """By the constructor of `supervision.Detections`: arrays of one length, masks bool and full size, everything else in `data`."""
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=lambda **fields: SimpleNamespace(**fields)))
    one = found(kind)
    made = one.to_supervision()
    assert set(vars(made)) == {"xyxy", "mask", "confidence", "class_id", "data"}
    assert np.array_equal(made.xyxy, one.boxes.xyxy)
    assert made.xyxy.dtype == np.float32
    assert np.array_equal(made.confidence, one.boxes.conf)
    assert made.class_id.tolist() == [90, 3]
    assert made.data["class_name"].tolist() == ["cup", "plate"]
    assert all(isinstance(value, np.ndarray) and len(value) == 2 for value in made.data.values())
    if kind in ("masks", "outlines"):
        assert made.mask.dtype == bool
        assert made.mask.shape == (2, *SIZE)
        assert made.mask.any()
    else:
        assert made.mask is None
    assert ("xyxyxyxy" in made.data, "keypoints" in made.data) == (kind == "rotated", kind == "points")
    assert len(one[[]].to_supervision().xyxy) == 0


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_df"), ("supervision", "to_supervision")])
def test_a_missing_package_is_one_sentence(package, method, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"^{method}: expected the package {package}, found none; pip install {package}$"):
        getattr(found("boxes"), method)()


def test_results_alone_import_none_of_them():
    code = "import sys, pellucid.results; print([name for name in ('pandas', 'supervision', 'av', 'cv2') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_crops_are_the_pixels_of_the_boxes(tmp_path):
    one = result(boxes=Boxes(torch.tensor([[10.2, 20.7, 30.1, 50.0], [-5, -5, 4, 3]])))
    one.image[:] = np.arange(SIZE[0] * SIZE[1] * 3, dtype=np.int64).reshape(*SIZE, 3) % 251
    paths = one.save_crop(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in paths] == ["cup/cup-0.png", "plate/cup-1.png"]
    assert np.array_equal(np.array(Image.open(paths[0])), one.image[20:50, 10:31])
    assert np.array_equal(np.array(Image.open(paths[1])), one.image[:3, :4])
    outside = result(boxes=Boxes(torch.tensor([[200.0, 20, 230, 50], [5, 5, 5, 5]])))
    assert outside.save_crop(tmp_path / "none") == []


@pytest.mark.parametrize(("name", "folder"), [("a/b", "a_b"), ("..", "_"), ("", "_"), ("고양이 x", "고양이 x"), ("a\\b\0", "a_b_")])
def test_class_names_are_safe_as_folders(name, folder, tmp_path):
    one = found("boxes")
    one = Result(one.meta, one.instances, (name, name), one.category_ids, one.name, one.image)
    (path, _) = one.save_crop(tmp_path / "crops")
    assert path.relative_to(tmp_path / "crops").parts == (folder, "cup-0.png")
    assert path.is_file()


def test_angles_survive_to_the_last_bit():
    one = result(boxes=Boxes(turned().bounds()), rboxes=RBoxes(torch.tensor([[1 / 3, 2 / 3, 9.7, 4.1, math.pi / 3], [1, 1, 2, 1, 0.1]])))
    assert torch.equal(again(one).rboxes.xywhr, one.rboxes.xywhr)


def test_objects_are_chosen_by_any_kind_of_number_and_keep_their_own(tmp_path):
    from pellucid import Model
    from pellucid.data.samples import sample_path

    result = Model("trees-detect-n").predict(next((sample_path("trees").parent / "images" / "val").iterdir()))[0]
    assert len(result) > 3
    for one in (np.int64(2), torch.tensor(2), 2):
        assert torch.equal(result[one].boxes.xyxy, result.boxes.xyxy[2:3])
    assert torch.equal(result[::-1].boxes.xyxy, result.boxes.xyxy.flip(0))
    paths = [path for one in result for path in one.save_crop(tmp_path)]
    assert len(set(paths)) == len(list(tmp_path.rglob("*.*"))) == len(result)
    record = result.to_coco()[0]
    with pytest.raises(DataError, match="whole number as image_id"):
        type(result).from_coco([{**record, "image_id": "img_7"}], {0: "tree"}, (10, 10))
    with pytest.raises(DataError, match="not finite"):
        type(result).from_coco([{**record, "bbox": [0, 0, float("nan"), 1]}], {0: "tree"}, (10, 10))

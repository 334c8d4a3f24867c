import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pellucid.errors import DataError, UsageError
from pellucid.geometry import Boxes
from pellucid.results import Result
from pellucid.types import ImageMeta, Instances

BOXES = torch.tensor([[10.0, 20, 60, 40], [0, 0, 30, 30], [50, 5, 99.5, 50]])


@pytest.fixture
def result():
    objects = Instances(torch.tensor([1, 0, 1]), {"boxes": Boxes(BOXES)}, torch.tensor([0.9, 0.6, 0.3]))
    meta = ImageMeta(5, 77, "photos/cup.png", 50, 100)
    image = np.full((50, 100, 3), 128, np.uint8)
    return Result(meta, objects, ("plate", "cup"), (3, 90), Path("cup.png"), image, {"pre": 1.0, "network": 2.0, "post": 0.5})


def test_boxes_in_every_form(result):
    boxes = result.boxes
    assert len(boxes) == len(result) == 3
    assert torch.equal(boxes.xyxy, BOXES)
    assert boxes.xywh[0].tolist() == [35, 30, 50, 20]
    torch.testing.assert_close(boxes.xyxyn[0], torch.tensor([0.1, 0.4, 0.6, 0.8]))
    torch.testing.assert_close(boxes.xywhn[0], torch.tensor([0.35, 0.6, 0.5, 0.4]))
    assert [result.names[c] for c in boxes.cls] == ["cup", "plate", "cup"]
    assert result.orig_shape == (50, 100)
    assert result.path == "photos/cup.png"


def test_objects_are_chosen_by_number_slice_mask_and_list(result):
    assert result[0].boxes.xyxy.tolist() == [BOXES[0].tolist()]
    assert result[-1].boxes.cls.tolist() == [1]
    assert len(result[1:]) == 2
    assert result[result.boxes.conf > 0.5].boxes.conf.tolist() == pytest.approx([0.9, 0.6])
    assert result[np.array([False, True, False])].boxes.cls.tolist() == [0]
    assert result[[2, 0]].boxes.conf.tolist() == pytest.approx([0.3, 0.9])
    assert len(result[[]]) == len(result[result.boxes.conf > 2]) == 0
    assert [len(part) for part in result] == [1, 1, 1]
    with pytest.raises(IndexError, match="below 3, got 3"):
        result[3]


def test_json_carries_names_and_the_users_ids(result):
    content = json.loads(result.to_json())
    assert content["objects"][0] == {"name": "cup", "class": 90, "score": 0.9, "box": [10, 20, 60, 40]}
    assert (content["path"], content["height"], content["width"]) == ("photos/cup.png", 50, 100)
    assert content["speed"] == {"pre": 1, "network": 2, "post": 0.5}


def test_coco_records(result):
    assert result.to_coco()[2] == {"image_id": 77, "category_id": 90, "bbox": [50, 5, 49.5, 45], "score": 0.3}
    assert result.to_coco(image_id=4)[0]["image_id"] == 4


def test_label_rows_read_back(result, tmp_path):
    rows = [line.split() for line in result.save_txt(tmp_path, save_conf=True).read_text().splitlines()]
    assert (tmp_path / "cup.txt").is_file()
    assert [row[0] for row in rows] == ["90", "3", "90"]
    np.testing.assert_allclose(np.array(rows[0][1:], float), [0.35, 0.6, 0.5, 0.4, 0.9], atol=1e-6)
    assert all(len(line.split()) == 5 for line in result.save_txt(tmp_path / "x" / "y.txt").read_text().splitlines())
    assert result[[]].save_txt(tmp_path / "empty.txt").read_text() == ""


def test_the_picture_is_saved_under_its_own_name(result, tmp_path):
    path = result.save(tmp_path / "out")
    assert path == tmp_path / "out" / "cup.png"
    saved = np.array(Image.open(path))
    assert saved.shape == result.image.shape
    assert (saved != result.image).any()
    assert (result.image == 128).all()
    assert replace(result, name=Path("a/cup.raw")).save(tmp_path).name == "cup.raw.jpg"


def test_without_pixels_the_file_is_read_again(result, tmp_path):
    Image.fromarray(result.image).save(tmp_path / "p.png")
    bare = replace(result, image=None, meta=replace(result.meta, path=str(tmp_path / "p.png")))
    assert np.array_equal(bare.plot(), result.plot())


def test_a_place_that_cannot_be_written_is_named(result, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/out.*choose another"):
        result.save(tmp_path / "file" / "out")
    (tmp_path / "cup.png").mkdir()
    with pytest.raises(UsageError, match=r"cup\.png"):
        result.save(tmp_path)


def test_a_result_says_in_one_line_what_it_holds(result):
    assert repr(result) == "Result('cup.png', 100x50: 1 plate, 2 cup)"
    assert repr(result[[]]) == "Result('cup.png', 100x50: nothing)"


def test_records_of_several_pictures_are_not_one_result(result):
    records = result.to_coco()
    back = Result.from_coco([{**record, "file_name": "cup.png"} for record in records], {3: "plate", 90: "cup"}, (50, 100))
    assert back.to_coco() == records
    with pytest.raises(DataError, match=r"^record 2: expected image_id 77 as in record 0, .*got 78; call from_coco once for each image_id"):
        Result.from_coco([*records[:2], {**records[2], "image_id": 78}], {3: "plate", 90: "cup"}, (50, 100))
    for wrong, kind in (({"annotations": records}, "a dict"), ([records], "an item of the kind list")):
        with pytest.raises(DataError, match=f"^records: expected a list of COCO results, each a dict, got {kind}; "):
            Result.from_coco(wrong, {3: "plate", 90: "cup"}, (50, 100))

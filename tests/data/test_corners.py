"""Four corners, and rings, in the order in which they were drawn: whatever their winding, through every format that holds them."""

import json

import numpy as np
import pytest

from pellucid.data.convert import convert
from pellucid.data.readers import read_dataset, read_whole
from pellucid.data.repair import repair

from .make import boxes, coco, codes, labelme, yolo
from .test_dota import dota

SHIP = np.array(((20.3, 40.7), (44.1, 30.2), (34.4, 8.9), (10.6, 19.4)))
ORDERS = [np.roll(way, -k, 0) for way in (SHIP, SHIP[::-1]) for k in range(4)]
RING = np.array(((5, 5), (30, 8), (20, 30), (15, 12), (8, 20)), np.float64)  # no rectangle
BOXED = ("boxes", "rboxes")


def row(corners):
    return " ".join(f"{value:.3f}" for value in corners.reshape(-1)) + " ship 0\n"


def corners_in(file):
    rows = [line.split()[:8] for line in file.read_text().splitlines()]
    return np.array(rows, np.float64).reshape(-1, 4, 2)


@pytest.fixture
def ships(tmp_path):
    """A DOTA set with a ship in each of the eight orders."""
    assert len({row(order) for order in ORDERS}) == 8
    return dota(tmp_path / "old", {"train": {"a": "".join(map(row, ORDERS))}, "val": {"v": row(SHIP)}}, height=50)


@pytest.mark.parametrize("way", [("coco",), ("labelme",), ("yolo",), ("dota",), ("coco", "labelme"), ("labelme", "coco")], ids="-".join)
def test_all_orders_of_corners_there_and_back(way, ships, tmp_path):
    source = ships
    for number, to in enumerate((*way, "dota")):
        needs = BOXED if source.name.endswith("yolo") else None
        source, before = tmp_path / f"{number}-{to}", source
        assert convert(before, source, to, needs, strict=True).lost == {}
    assert np.abs(corners_in(source / "train/labelTxt/a.txt") - ORDERS).max() <= 0.01


def test_coco_labelme_and_yolo_hold_corners_as_they_were_drawn(ships, tmp_path):
    for to in ("coco", "labelme", "yolo"):
        convert(ships, tmp_path / to, to, strict=True)
    notes = json.loads((tmp_path / "coco/annotations/instances_train.json").read_text())["annotations"]
    assert np.abs(np.reshape([note["segmentation"] for note in notes], (8, 4, 2)) - ORDERS).max() <= 0.001
    assert all(note["area"] == pytest.approx(notes[0]["area"], abs=0.01) for note in notes)
    shapes = json.loads((tmp_path / "labelme/train/a.json").read_text())["shapes"]
    assert np.abs(np.array([shape["points"] for shape in shapes]) - ORDERS).max() <= 0.001
    rows = [line.split()[1:] for line in (tmp_path / "yolo/labels/train/a.txt").read_text().splitlines()]
    assert np.abs(np.array(rows, np.float64).reshape(8, 4, 2) * (60, 50) - ORDERS).max() <= 0.001


def both(ring):
    """A ring, and beside it one that runs the other way."""
    return np.array((ring, np.add(ring[::-1], (2, 0))))


def outlines(form, root, ring):
    """A set of one outline, drawn both ways; and how its rings are found in a copy."""
    ways = [way.tolist() for way in both(ring)]
    flat = [[round(value, 4) for point in way for value in point] for way in ways]
    for side in ("train", "val"):
        if form == "labelme":
            labelme(root, side, side, [{"label": "cat", "points": way, "shape_type": "polygon"} for way in ways])
        elif form == "coco":
            notes = [{"id": i, "image_id": 0, "category_id": 0, "bbox": [5, 5, 25, 25], "area": 200, "iscrowd": 0} for i in (1, 2)]
            notes = [{**note, "segmentation": [way]} for note, way in zip(notes, flat, strict=True)]
            coco(root, side, [{"id": 0, "file_name": f"{side}.jpg", "width": 60, "height": 40}], notes, [{"id": 0, "name": "cat"}])
    if form == "yolo":
        rows = "".join("0 " + " ".join(f"{value:.7f}" for value in np.divide(way, (60, 40)).reshape(-1)) + "\n" for way in ways)
        return yolo(root, {"train": {"train": rows}, "val": {"val": rows + "0 .5 .5 1.2 .5 .5 .9\n"}}, yaml="names: [cat]\n")
    return root


def rings_in(form, root, side):
    if form == "labelme":
        return [shape["points"] for shape in json.loads((root / f"{side}/{side}.json").read_text())["shapes"]]
    if form == "coco":
        document = json.loads((root / f"annotations/instances_{side}.json").read_text())
        return [np.reshape(note["segmentation"][0], (-1, 2)).tolist() for note in document["annotations"]]
    rows = (root / f"labels/{side}/{side}.txt").read_text().splitlines()
    return [(np.array(line.split()[1:], np.float64).reshape(-1, 2) * (60, 40)).tolist() for line in rows]


@pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")  # a row that is cut at the edge
@pytest.mark.parametrize("old", ["coco", "labelme", "yolo"])
@pytest.mark.parametrize("new", ["coco", "labelme", "yolo"])
def test_an_only_ring_keeps_its_winding(old, new, tmp_path):
    source = outlines(old, tmp_path / "old", RING)
    needs = ("boxes", "polygons") if old == "yolo" else None
    report = convert(source, tmp_path / "new", new, needs)
    assert "joined" not in report.lost
    for side in ("train", "val"):
        found = rings_in(new, tmp_path / "new", side)
        assert np.abs(np.array(found[:2]) - both(RING)).max() < 0.002
    if new == old:
        repair(source, tmp_path / "fixed", needs)
        assert np.abs(np.array(rings_in(new, tmp_path / "fixed", "train")) - both(RING)).max() < 0.002


@pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")
@pytest.mark.parametrize("form", ["coco", "labelme"])
def test_outlines_of_four_corners_become_those_corners(form, tmp_path):
    for number, order in enumerate(ORDERS):
        root = outlines(form, tmp_path / f"{number}", order - (0, 5))
        lost = convert(root, tmp_path / f"{number}-dota", "dota").lost
        assert set(lost) == ({"areas"} if form == "coco" else set()), "of COCO one that is not the outline's"
        found = corners_in(tmp_path / f"{number}-dota/train/labelTxt/train.txt")
        assert np.abs(found - both(order - (0, 5))).max() <= 0.01


def test_rings_are_taught_the_same_whichever_way_they_were_drawn(tmp_path):
    root = outlines("coco", tmp_path, RING)
    index = read_dataset(root, ("boxes", "polygons")).splits["train"]
    assert "wound" not in index.columns
    areas = index.instances(0).shapes["polygons"].area()
    assert areas[0].item() == pytest.approx(areas[1].item())
    assert areas[0] > 0
    assert read_whole(root, copy=True).splits["train"].columns["wound"].values.tolist() == [0, 1]


def test_a_rectangle_of_four_corners_is_not_its_bounding_box(tmp_path):
    kite = [[30, 2], [45, 17], [30, 32], [15, 17]]
    forms = [kite, [[5, 5], [20, 15]], [[5, 5], [20, 5], [20, 15], [5, 15]], [[5, 5], [20, 15], [20, 5], [5, 15]]]
    shapes = [{"label": "cat", "points": points, "shape_type": "rectangle", "group_id": None, "flags": {}} for points in forms]
    for side in ("train", "val"):
        labelme(tmp_path / "old", side, side, shapes)
    index = read_dataset(tmp_path / "old", ("boxes", "polygons")).splits["train"]
    assert index.instances(0).shapes["polygons"].area().tolist() == [450, 150, 150, 150]
    assert boxes(index, 0)[0] == [15, 2, 45, 32]
    assert codes(index.findings) == {}
    assert convert(tmp_path / "old", tmp_path / "new", "labelme", strict=True).lost == {}
    assert json.loads((tmp_path / "new/train/train.json").read_text())["shapes"] == shapes
    convert(tmp_path / "old", tmp_path / "dota", "dota", strict=True)
    assert corners_in(tmp_path / "dota/train/labelTxt/train.txt")[0].tolist() == kite

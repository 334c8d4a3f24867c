"""Real data sets, where they are at hand: what is read equals what their own READMEs count."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pellucid.data.readers import read_dataset

from .make import codes, text

ROOT = Path(__file__).parents[3] / "shared" / "data"  # beside the checkout
BOXES, SEGMENT, POSE, TURNED = ("boxes",), ("boxes", "polygons"), ("boxes", "keypoints"), ("boxes", "rboxes")
NOTES = {"points-none", "ignored", "class-absent"}
pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason=f"the real data sets are not in {ROOT}")

# set, needs, images and objects of train and val, ignored objects, findings above a note
SETS = [
    ("nuclei", SEGMENT, (528, 24_027), (136, 4_959), 0, {}),
    ("nuclei", BOXES, (528, 24_027), (136, 4_959), 0, {}),
    ("aerial", TURNED, (2_327, 20_445), (571, 4_454), 256, {}),
    ("pcb", BOXES, (1_000, 6_873), (500, 3_140), 0, {}),
    ("animals", BOXES, (3_031, 5_516), (380, 647), 0, {}),
    ("animals", POSE, (3_031, 4_357), (380, 516), 0, {}),
    ("mouse", POSE, (74, 74), (16, 16), 0, {}),
    ("coco-mini", BOXES, (76, 701), (75, 605), 13, {}),
    ("coco-mini", SEGMENT, (76, 701), (75, 605), 13, {}),
    ("coco-mini", POSE, (76, 166), (75, 109), 6, {}),
    ("bccd", BOXES, (205, 2_804), (87, 1_137), 0, {"degenerate": 2}),
]


@pytest.mark.parametrize(("name", "needs", "train", "val", "ignored", "found"), SETS, ids=lambda value: str(value).replace("/", "-")[:40])
def test_counts(name, needs, train, val, ignored, found):
    data = read_dataset(ROOT / name, needs, ("train", "val"))
    counts = [(len(index), len(index.labels)) for index in data.splits.values()]
    assert counts == [train, val]
    assert sum(int(index.ignore.sum()) for index in data.splits.values()) == ignored
    assert {code: n for code, n in codes(data.all_findings()).items() if code not in NOTES} == found
    for index in data.splits.values():
        kinds = [kind for kind in needs if kind != "boxes"]
        assert all(len(index.columns[kind]) == len(index.labels) for kind in kinds)
        sides = index.boxes[:, 2:] - index.boxes[:, :2]
        assert (sides > 0).all()
        assert (index.boxes >= 0).all()


def test_the_masks_of_nuclei_are_as_large_as_their_file_says():
    index = read_dataset(ROOT / "nuclei", SEGMENT, ("val",)).splits["val"]
    stated = index.columns["area"].values
    drawn = np.concatenate([index.instances(row).shapes["polygons"].area().numpy() for row in range(len(index))])
    assert len(drawn) == len(stated) == 4_959
    large = stated > 200
    assert large.sum() > 1_000
    assert np.median(np.abs(drawn / stated - 1)[large]) < 0.02
    document = json.loads((ROOT / "nuclei/annotations/instances_train.json").read_text())
    coded = [a for a in document["annotations"] if isinstance(a["segmentation"], dict)]
    assert len(coded) >= 5
    train = read_dataset(ROOT / "nuclei", SEGMENT, ("train",)).splits["train"]
    rows = {int(image): row for row, image in enumerate(train.ids)}
    holes = 0
    for annotation in coded:
        shape = train.instances(rows[annotation["image_id"]]).shapes["polygons"]
        height, width = train.sizes[rows[annotation["image_id"]]].tolist()
        filled = shape.rasterise(height, width).sum((1, 2)).tolist()
        assert int(sum(annotation["segmentation"]["counts"][1::2])) in filled
        holes += max(len(shape.parts(i)) for i in range(len(shape))) > 1
    assert holes >= len(coded) / 2  # a hole that touches the outside at a corner is a bay of the same ring


def _posed(index):
    """How many objects have a labelled point."""
    return int((index.columns["keypoints"].values.reshape(len(index.labels), -1, 3)[:, :, 2] > 0).any(1).sum())


def test_labelled_points_of_mouse_and_animals():
    mouse = read_dataset(ROOT / "mouse", POSE)
    seen = sum(int((index.columns["keypoints"].values.reshape(-1, 3)[:, 2] > 0).sum()) for index in mouse.splits.values())
    assert seen == 1_396
    spec = mouse.splits["train"].keypoints
    assert (spec.points, spec.flip[:4]) == (17, (3, 2, 1, 0))
    animals = read_dataset(ROOT / "animals", POSE)
    posed = [_posed(index) for index in animals.splits.values()]
    assert posed == [4_320, 512]
    assert animals.task_args()["points"] == 20
    assert sum(a != b for a, b in enumerate(animals.task_args()["flip"])) == 16
    persons = read_dataset(ROOT / "coco-mini", POSE)
    posed = [_posed(index) for index in persons.splits.values()]
    assert posed == [80, 61]


def test_classes_of_aerial():
    data = read_dataset(ROOT / "aerial", TURNED, ("train", "val"))
    counted = Counter()
    for index in data.splits.values():
        counted.update(dict(zip(index.names, index.class_counts().tolist(), strict=True)))
    assert counted == {"Person": 12_227, "Car": 7_304, "Bicycle": 4_964, "OtherVehicle": 148}
    assert [int((np.diff(index.start) == 0).sum()) for index in data.splits.values()] == [29, 3]


@pytest.mark.parametrize(("folder", "needs", "images", "objects", "names"), [
    ("dsb-nuclei", SEGMENT, 24, 735, ["nucleus"]),
    ("pkg-seg-nuclei", SEGMENT, 4, 132, ["nucleus"]),
    ("pkg-obb-nuclei", TURNED, 4, 132, ["nucleus"]),
    ("hit-uav-obb", TURNED, 20, 259, ["a", "b", "c", "d"]),
    ("pkg-det-trees", BOXES, 20, 523, ["tree"]),
])  # fmt: skip
def test_small_samples(tmp_path, folder, needs, images, objects, names):
    source = text(tmp_path / "data.yaml", f"path: {ROOT}/samples/{folder}\ntrain: images\nval: images\nnames: {json.dumps(names)}\n")
    index = read_dataset(source, needs).splits["train"]
    assert (len(index), len(index.labels)) == (images, objects)
    cut = {"pkg-obb-nuclei": {"not-rectangle": 7}}  # corners that were moved to the edge of the picture
    assert codes(index.findings) == cut.get(folder, {})


def test_coco_with_attribution(tmp_path):
    for file, needs, images, objects in (("instances", SEGMENT, 30, 216), ("person_keypoints", POSE, 14, 22)):
        yaml = "".join(f"{split}: images\n{split}_json: {file}.json\n" for split in ("train", "val"))
        index = read_dataset(text(tmp_path / f"{file}.yaml", f"path: {ROOT}/samples/coco-ccby\n{yaml}"), needs).splits["train"]
        assert (len(index), len(index.labels)) == (images, objects)
        assert len(index.columns[needs[1]]) == objects

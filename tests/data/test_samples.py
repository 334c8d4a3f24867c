"""The samples that ship: what they hold, under which terms, and that validation shows nothing of training."""

import json

import numpy as np
import pytest

from pellucid.data.images import read_image
from pellucid.data.samples import NAMES, sample_path

COUNTS = {  # pictures and objects of train, of val
    "trees": ((17, 429), (3, 94)),
    "nuclei": ((2, 64), (2, 66)),
    "nuclei-obb": ((2, 64), (2, 66)),
    "quokka": ((48, 70), (24, 26)),
}
PHOTOS = {
    "train": {"brick", "chelsea", "clock_motion", "grass", "retina", "rocket"},
    "val": {"coffee", "gravel", "hubble_deep_field", "own-photo"},
}


def folder(name):
    return sample_path(name).parent


def pictures(name, split):
    found = [path for path in sorted(folder(name).rglob("*")) if path.suffix in (".jpg", ".png") and split in path.parts]
    assert found
    return found


def document(name, kind, split):
    return json.loads((folder(name) / "annotations" / f"{kind}_{split}.json").read_text())


def objects(name, split):
    """Label rows or annotations of a split."""
    if (folder(name) / "labels").is_dir():
        return [line for path in (folder(name) / "labels" / split).iterdir() for line in path.read_text().splitlines()]
    return json.loads(next((folder(name) / "annotations").glob(f"*_{split}.json")).read_text())["annotations"]


def test_every_sample_is_counted():
    assert set(COUNTS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("position", "split"), [(0, "train"), (1, "val")])
def test_counts(name, position, split):
    assert (len(pictures(name, split)), len(objects(name, split))) == COUNTS[name][position]
    assert f"{sum(count for _, count in COUNTS[name])} " in (folder(name) / "README.md").read_text().splitlines()[0], (
        "its README counts too"
    )


@pytest.mark.parametrize("name", NAMES)
def test_terms_and_source_stand_beside_the_pictures(name):
    assert "Copyright" in (folder(name) / "LICENSE").read_text()
    assert "ource" in (folder(name) / "README.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_no_picture_is_in_both_splits(name):
    train, val = ({read_image(path).tobytes() for path in pictures(name, split)} for split in ("train", "val"))
    assert not train & val


def test_samples_stay_small():
    assert sum(path.stat().st_size for name in NAMES for path in folder(name).rglob("*") if path.is_file()) < 4_000_000


def test_nuclei_tiles_do_not_overlap():
    corners = [tuple(map(int, path.stem.split("-")[1:])) for split in ("train", "val") for path in pictures("nuclei", split)]
    assert sorted(corners) == [(0, 0), (0, 256), (256, 0), (256, 256)]
    assert {read_image(path).shape for split in ("train", "val") for path in pictures("nuclei", split)} == {(256, 256, 3)}


@pytest.mark.parametrize("split", ["train", "val"])
def test_oriented_boxes_hold_the_outlines_and_are_no_larger_than_the_boxes(split):
    labels = document("nuclei", "instances", split)
    compared = 0
    for image in labels["images"]:
        rows = (folder("nuclei-obb") / "labels" / split / image["file_name"]).with_suffix(".txt").read_text().splitlines()
        own = [each for each in labels["annotations"] if each["image_id"] == image["id"]]
        for row, each in zip(rows, own, strict=True):
            corners = np.array(row.split()[1:], float).reshape(4, 2) * 256
            points = np.concatenate([np.reshape(part, (-1, 2)) for part in each["segmentation"]])
            sides = np.roll(corners, -1, 0) - corners
            away = points[:, None] - corners
            inward = (sides[:, 0] * away[..., 1] - sides[:, 1] * away[..., 0]) / np.hypot(*sides.T)
            assert inward.min() > -1e-3
            assert inward.min(0).max() < 1, "each side touches the outline, which is thinned by half a pixel"
            area = np.hypot(*sides[0]) * np.hypot(*sides[1])
            assert each["area"] <= area + 0.1 <= each["bbox"][2] * each["bbox"][3] + 0.2
            compared += 1
    assert compared > 60


@pytest.mark.parametrize("split", ["train", "val"])
def test_quokkas_of_training_and_validation_stand_before_other_photos(split):
    images = document("quokka", "keypoints", split)["images"]
    assert {image["background"] for image in images} == PHOTOS[split]
    assert all(image["background"] in image["file_name"] for image in images)
    named = (folder("quokka") / "README.md").read_text()
    assert all(f"| {photo}" in named for photo in PHOTOS[split] - {"own-photo"})
    assert not PHOTOS["train"] & PHOTOS["val"]


@pytest.mark.parametrize("split", ["train", "val"])
def test_quokka_points_agree_with_box_outline_and_visibility(split):
    labels = document("quokka", "keypoints", split)
    category = labels["categories"][0]
    assert [category["keypoints"][i].replace("left", "*").replace("right", "left").replace("*", "right") for i in category["flip_idx"]] == (
        category["keypoints"]
    )
    for each in labels["annotations"]:
        points = np.reshape(each["keypoints"], (7, 3))
        seen = points[:, 2] > 0
        x, y, w, h = each["bbox"]
        assert seen.sum() == each["num_keypoints"] >= 3
        assert (points[~seen] == 0).all()
        assert ((points[seen, :2] >= (x - 2, y - 2)) & (points[seen, :2] <= (x + w + 2, y + h + 2))).all()
        outline = np.reshape(each["segmentation"][0], (-1, 2))
        assert outline.min() >= 0
        assert outline.max() <= 320
        assert np.abs((*outline.min(0), *np.ptp(outline, 0)) - np.array(each["bbox"])).max() < 3
    hidden = sum(each["keypoints"][2::3].count(1) for each in labels["annotations"])
    outside = sum(each["keypoints"][2::3].count(0) for each in labels["annotations"])
    assert outside > 0
    assert hidden > 0 or split == "val"

"""The COCO reader: ids, crowds, missing keys, frames, places of files, hostile input."""

import json

import numpy as np
import pytest
from PIL import Image

from pellucid.data import open_dataset, read_image
from pellucid.data.readers import read_dataset
from pellucid.errors import DataError, MissingFileError, PellucidWarning

from .make import EXIF_ORIENTATION, boxes, coco, codes, picture, text

CATEGORIES = [{"id": 90, "name": "brush"}, {"id": 2, "name": "bike"}, {"id": 17, "name": "cat"}]


def image(image_id, name=None, **more):
    return {"id": image_id, "file_name": name or f"{image_id}.jpg", "width": 60, "height": 40, **more}


def thing(annotation_id, image_id=1, category_id=17, bbox=(10, 5, 20, 10), **more):
    return {"id": annotation_id, "image_id": image_id, "category_id": category_id, "bbox": list(bbox), **more}


def pair(root, images, annotations, categories=CATEGORIES):
    coco(root, "train2017", images, annotations, categories)
    coco(root, "val2017", [image(1)], [thing(1)], categories)
    return root


def test_sparse_ids_become_contiguous_and_are_kept(tmp_path):
    pair(tmp_path, [image(900), image(7)], [thing(1, 900, 90), thing(2, 7, 2), thing(3, 900, 17)])
    data = open_dataset(tmp_path)
    train = data.splits["train"]
    assert data.format == "coco"
    assert data.category_ids == (2, 17, 90)
    assert data.names == ("bike", "cat", "brush")
    assert train.ids.tolist() == [900, 7]
    assert [train.instances(i).labels.tolist() for i in range(2)] == [[2, 1], [0]]
    assert boxes(train, 1) == [[10, 5, 30, 15]]
    assert data.splits["val"].labels.tolist() == [1]


def test_one_class_map_whichever_splits_are_read(tmp_path):
    coco(tmp_path, "train2017", [image(1)], [thing(1)], CATEGORIES)
    coco(tmp_path, "val2017", [image(1)], [thing(1)], CATEGORIES[2:])
    coco(tmp_path, "test2017", [image(1)], [], [{"id": 1, "name": "first"}])
    for splits in (("val",), ("train", "val"), ("val", "train"), ("test",)):
        data = open_dataset(tmp_path, splits=splits)
        assert data.category_ids == (1, 2, 17, 90)
        assert tuple(data.splits) == splits
    coco(tmp_path, "val2017", [image(1)], [], [{"id": 17, "name": "dog"}])
    with pytest.raises(DataError, match="category 17 is 'dog' here but 'cat'"):
        open_dataset(tmp_path)


def test_crowds_are_ignored_regions_and_missing_keys_have_defaults(tmp_path):
    polygon = {"id": 4, "image_id": 1, "category_id": 2, "segmentation": [[1, 2, 11, 2, 11, 22], [0, 3, 5, 3, 5, 9]]}
    nothing = {"id": 5, "image_id": 1, "category_id": 2}
    crowd = thing(3, iscrowd=1, segmentation={"size": [40, 60], "counts": "abc"})
    pair(tmp_path, [image(1)], [thing(1), thing(2, iscrowd=0), crowd, polygon, nothing])
    with pytest.warns(PellucidWarning, match=r"object-without-box.*annotation 5"):
        train = open_dataset(tmp_path).splits["train"]
    assert train.ignore.tolist() == [False, False, True, False]
    assert boxes(train, 0)[3] == [0, 2, 11, 22]
    assert codes(train.findings) == {"ignored": 1, "object-without-box": 1}


def test_a_box_without_height_is_dropped_and_counted(tmp_path):
    flat = thing(1, bbox=(29.65, 38.3, 1.03, 0.0), area=0, segmentation=[[29, 38, 30, 38, 29, 38]])
    pair(tmp_path, [image(1)], [flat, thing(2)])
    with pytest.warns(PellucidWarning, match=r"1 object\(s\) without width, height or area.*annotation 1"):
        train = open_dataset(tmp_path).splits["train"]
    assert len(train.labels) == 1


@pytest.mark.parametrize(("annotation", "code"), [
    (thing(1, bbox=(0, 0, float("nan"), 4)), "row-number"),
    (thing(1, bbox=(0, 0, 1e400, 4)), "row-number"),
    (thing(1, bbox=(0, 0, "x", 4)), "object-malformed"),
    (thing(1, bbox=(0, 0, 4)), "object-malformed"),
    (thing(1, bbox=(0, 0, [1], 4)), "object-malformed"),
    ({"id": 1, "image_id": 1, "category_id": 2, "segmentation": [5]}, "object-malformed"),
    (thing(1, bbox=(70, 0, 5, 4)), "outside"),
    (thing(1, bbox=(50, 0, 50, 4)), "clipped"),
    (thing(1, image_id=99), "object-without-image"),
    (thing(1, image_id={"a": 1}), "object-malformed"),
    ("text", "object-malformed"),
    (None, "object-malformed"),
    (thing(1, category_id=5), "class-id"),
    (thing(1, category_id="17"), "class-id"),
])  # fmt: skip
def test_malformed_objects_are_counted_and_harm_no_other(tmp_path, annotation, code):
    pair(tmp_path, [image(1), image(2)], [annotation, thing(2, 2)])
    train = read_dataset(tmp_path).splits["train"]
    assert codes(train.findings) == {code: 1}
    assert boxes(train, 1) == [[10, 5, 30, 15]]


def test_images_that_cannot_be_used(tmp_path):
    images = [image(1), image(2, "lost.jpg", paint=False), image(3, "broken.jpg"), image(1, "again.jpg"), {"id": 9, "paint": False}]
    pair(tmp_path, images, [thing(1), thing(2, 2), thing(3, 3)])
    text(tmp_path / "train2017/broken.jpg", "no")
    train = read_dataset(tmp_path).splits["train"]
    assert codes(train.findings) == {"image-missing": 1, "image-unreadable": 1, "image-twice": 1, "object-malformed": 1}
    assert train.ids.tolist() == [1]
    assert len(train.labels) == 1


def test_ids_that_are_no_numbers(tmp_path):
    pair(tmp_path, [image("abc"), image(1 << 70, "b.jpg")], [thing(1, "abc"), thing(2, 1 << 70)])
    train = read_dataset(tmp_path).splits["train"]
    assert train.ids.tolist() == [0, 1]
    assert len(train.labels) == 2
    assert codes(train.findings) == {"id-replaced": 2}


@pytest.mark.parametrize("orientation", range(5, 9))
def test_labels_drawn_on_the_unturned_picture_are_turned(tmp_path, orientation):
    pair(tmp_path, [image(1)], [thing(1, bbox=(6, 4, 24, 8))])
    stored = np.zeros((40, 60, 3), np.uint8)
    stored[4:12, 6:30] = 255
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    Image.fromarray(stored).save(tmp_path / "train2017/1.png", exif=exif)
    (tmp_path / "train2017/1.png").rename(tmp_path / "train2017/1.jpg")
    with pytest.warns(PellucidWarning, match="exif-frame"):
        train = open_dataset(tmp_path).splits["train"]
    ys, xs = np.nonzero(read_image(train.path(0))[..., 0])
    assert boxes(train, 0) == [[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]]
    assert train.sizes.tolist() == [[60, 40]]


def test_stated_sizes(tmp_path):
    bare = {"id": 3, "file_name": "3.jpg"}
    pair(tmp_path, [image(1, width=600, height=400), image(2), bare], [thing(1)])
    with pytest.warns(PellucidWarning, match=r"size-mismatch.*1\.jpg: stated 600x400, file 60x40"):
        train = open_dataset(tmp_path).splits["train"]
    assert boxes(train, 0) == [[10, 5, 30, 15]]


def test_other_layouts(tmp_path):
    document = {"images": [image(1)], "annotations": [thing(1)], "categories": CATEGORIES}
    for split in ("train", "valid"):
        text(tmp_path / "robo" / split / "_annotations.coco.json", json.dumps(document))
        picture(tmp_path / "robo" / split / "1.jpg")
    text(tmp_path / "flat/annotations/mouse_keypoints_train.json", json.dumps(document))
    text(tmp_path / "flat/annotations/mouse_keypoints_val.json", json.dumps(document))
    text(tmp_path / "flat/annotations/captions_val.json", "{}")
    picture(tmp_path / "flat/images/1.jpg")
    named = "path: robo/../flat\ntrain: images\ntrain_json: annotations/mouse_keypoints_train.json\nvalid: images\nvalid_json: all.json\n"
    text(tmp_path / "flat/all.json", json.dumps(document))
    for source in (tmp_path / "robo", tmp_path / "flat", text(tmp_path / "named.yaml", named)):
        data = open_dataset(source)
        assert data.format == "coco"
        assert [boxes(index, 0) for index in data.splits.values()] == [[[10, 5, 30, 15]]] * 2
        assert all(str(index.root) + "/1.jpg" == str(index.path(0)) for index in data.splits.values())
        assert all(index.paths[0].tobytes() == b"1.jpg" for index in data.splits.values())
        assert all(index.path(0).is_file() for index in data.splits.values())


def escape(root, name):
    coco(root, "train2017", [image(1, name, paint=False), image(2)], [], CATEGORIES)


@pytest.mark.parametrize(("break_it", "match"), [
    (lambda root: text(root / "annotations/instances_train2017.json", "{"), "expected JSON"),
    (lambda root: text(root / "annotations/instances_train2017.json", "[" * 200000), "expected JSON"),
    (lambda root: text(root / "annotations/instances_train2017.json", "[]"), "list `images`"),
    (lambda root: text(root / "annotations/instances_train2017.json", '{"images": [], "annotations": []}'), "list `categories`"),
    (lambda root: coco(root, "train2017", [image(1)], [], []) and coco(root, "val2017", [image(1)], [], []), "at least one category"),
    (lambda root: coco(root, "train2017", [image(1)], [], [{"id": "a"}]), "whole number `id`"),
    (lambda root: escape(root, "../../x.jpg"), "image 1: expected a file name inside"),
    (lambda root: escape(root, "/etc/x.jpg"), "image 1: expected a file name inside"),
    (lambda root: coco(root, "train2017", [], [], CATEGORIES), "split 'train' is empty"),
    (lambda root: (root / "train2017").rename(root / "elsewhere"), "expected the pictures"),
    (lambda root: text(root / "annotations/instances_train.json", "{}"), "expected one annotation file for 'train'"),
    (lambda root: (root / "annotations/instances_val2017.json").unlink(), "expected the split 'val', found train"),
    (lambda root: text(root / "data.yaml", "train: train2017\ntrain_json: no.json\nval: x\nval_json: y"), r"no\.json: expected a COCO"),
    (lambda root: text(root / "data.yaml", "train: [a]\ntrain_json: no.json\nval: x\nval_json: y"), "as one folder and one file"),
])  # fmt: skip
def test_what_cannot_be_used_stops_with_a_sentence(tmp_path, break_it, match):
    pair(tmp_path, [image(1)], [thing(1)])
    break_it(tmp_path)
    with pytest.raises(DataError, match=match):
        open_dataset(tmp_path)


def test_json_larger_than_memory_is_refused(tmp_path, monkeypatch):
    pair(tmp_path, [image(1)], [thing(1)])
    monkeypatch.setattr("os.sysconf", lambda name: 10)
    with pytest.raises(DataError, match="do not fit into"):
        open_dataset(tmp_path)


def test_a_yaml_folder_that_is_not_there(tmp_path):
    source = text(tmp_path / "data.yaml", "path: nowhere\ntrain: a\ntrain_json: b.json\nval: a\nval_json: b.json\n")
    with pytest.raises(MissingFileError, match=r"nowhere/b\.json"):
        open_dataset(source)

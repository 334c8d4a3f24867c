"""From format to format and back: the same pixels, names, ids and points, or a counted loss."""

import json
import time

import numpy as np
import pytest
import torch

from pellucid.data import open_dataset
from pellucid.data.convert import convert
from pellucid.data.readers import read_whole
from pellucid.data.writers import WRITERS, plan_of
from pellucid.data.writers.base import joined, rectangle_around
from pellucid.errors import DataError, PellucidWarning, UsageError
from pellucid.geometry import Rle
from pellucid.geometry.polygons import Polygons
from pellucid.geometry.rboxes import RBoxes, pairwise_rbox_iou

from .make import coco, codes, labelme, picture, text, voc, voc_object, yolo
from .test_dota import dota

pytestmark = pytest.mark.filterwarnings("ignore::pellucid.errors.PellucidWarning")
CATEGORIES = [{"id": 3, "name": "cat dog"}, {"id": 17, "name": "猫 <&> 'x'"}]
RING = np.array(((5, 5), (30, 8), (33, 30), (18, 22), (6, 34)), float)  # not convex
PARTS = [np.array(((40, 4), (52, 6), (44, 16)), float), np.array(((41, 25), (55, 24), (57, 36), (43, 37)), float)]


def ring_with_holes():
    mask = np.zeros((40, 60), bool)
    mask[4:36, 6:50] = True
    mask[10:20, 12:24] = mask[24:31, 30:44] = False
    return mask


def coco_set(root):
    """Outlines of several parts and with holes, a crowd region, folders below folders, ids with gaps."""
    holed = ring_with_holes()
    annotations = []
    for image_id in (70, 12):
        shapes = [
            [RING.reshape(-1).tolist()],
            [part.reshape(-1).tolist() for part in PARTS],
            Rle.of_masks(torch.from_numpy(holed[None])).coco()[0],
        ]
        boxes = [[5, 5, 28, 29], [40, 4, 17, 33], [6, 4, 44, 32]]
        for k, (shape, box) in enumerate(zip(shapes, boxes, strict=True)):
            entry = {"id": len(annotations) + 1, "image_id": image_id, "category_id": (3, 17, 17)[k], "iscrowd": 0, "bbox": box}
            annotations.append({**entry, "segmentation": shape, "area": 400.0})
    crowd = {"id": 9, "image_id": 12, "category_id": 3, "iscrowd": 1, "bbox": [50, 2, 8, 8], "area": 64.0}
    annotations.append({**crowd, "segmentation": Rle.of_masks(torch.ones(1, 40, 60, dtype=torch.bool)).coco()[0]})
    size = {"width": 60, "height": 40}
    for split, images in {"train": [(70, "a/x.jpg"), (12, "b/x.png")], "val": [(5, "ü n.jpg")]}.items():
        listed = [{"id": i, "file_name": name, **size} for i, name in images]
        coco(root, split, listed, annotations if split == "train" else [], CATEGORIES)
    return root


def masks(data):
    """{name of a picture: (n, 40, 60) bool masks}, and names and ignore marks of its objects."""
    found = {}
    for index in data.splits.values():
        for row in range(len(index)):
            objects = index.instances(row)
            names = [(index.names[k], ignored) for k, ignored in zip(objects.labels.tolist(), objects.ignore.tolist(), strict=True)]
            found[index.path(row).name + f"-{len(names)}"] = (objects.shapes["polygons"].rasterise(40, 60), names)
    return found


def overlap(a, b):
    return (a & b).flatten(1).sum(1) / (a | b).flatten(1).sum(1)


@pytest.mark.parametrize("middle", ["coco", "labelme", "yolo"])
def test_outlines_there_and_back(middle, tmp_path):
    before = read_whole(coco_set(tmp_path / "old"))
    there = convert(tmp_path / "old", tmp_path / "new", middle)
    back = convert(tmp_path / "new", tmp_path / "back", "coco", ("boxes", "polygons"))
    after = read_whole(tmp_path / "back")
    assert set(after.names) == set(before.names) == {"cat dog", "猫 <&> 'x'"}
    old, new = masks(before), masks(after)
    if middle == "yolo":  # holds no crowd region
        assert there.lost["ignored"]["count"] == 1
        shapes, names = old.pop("x.png-4")
        old["x.png-3"] = (shapes[:3], names[:3])
    assert set(new) == set(old)
    looked = 0
    for name, (shapes, names) in old.items():
        assert new[name][1] == names
        looked += len(names)
        if names:
            assert overlap(shapes, new[name][0]).min() >= 0.98
            assert (shapes[2] ^ torch.from_numpy(ring_with_holes())).sum() == 0, "a mask with two holes"
    assert looked == (6 if middle == "yolo" else 7)
    assert back.lost == {}
    assert ("joined" in there.lost) == (middle != "coco")
    assert (tuple(after.category_ids) == (3, 17)) == (middle != "labelme")
    assert ("class-ids" in there.lost) == (middle == "labelme")
    if middle == "coco":
        assert there.lost == {}
        assert [sorted(index.ids.tolist()) for index in after.splits.values()] == [[12, 70], [5]]
        assert {str(p.relative_to(tmp_path / "new/images")) for p in (tmp_path / "new/images").rglob("*.*")} == {
            "train/a/x.jpg",
            "train/b/x.png",
            "val/ü n.jpg",
        }


def test_stated_areas_and_crowds_stay_in_coco(tmp_path):
    convert(coco_set(tmp_path / "old"), tmp_path / "new", "coco")
    document = json.loads((tmp_path / "new/annotations/instances_train.json").read_text())
    assert [entry["area"] for entry in document["annotations"]] == [400.0] * 6 + [64.0]
    assert [entry["iscrowd"] for entry in document["annotations"]] == [0] * 6 + [1]
    assert document["categories"] == CATEGORIES
    assert codes(open_dataset(tmp_path / "new", ("boxes", "polygons")).all_findings())["ignored"] == 1


def turned(n=6):
    rng = np.random.default_rng(1)
    boxes = np.column_stack(
        (rng.uniform(20, 40, n), rng.uniform(15, 25, n), rng.uniform(8, 16, n), rng.uniform(4, 7, n), rng.uniform(-0.7, 2.3, n))
    )
    return RBoxes(torch.from_numpy(boxes))


@pytest.mark.parametrize("middle", ["coco", "labelme", "yolo", "dota"])
def test_oriented_boxes_there_and_back(middle, tmp_path):
    boxes = turned()
    rows = "".join(
        " ".join(f"{v:.4f}" for v in c.reshape(-1).tolist()) + f" {'big car' if i % 2 else 'Ship'} {int(i == 3)}\n"
        for i, c in enumerate(boxes.corners())
    )
    source = dota(tmp_path / "old", {"train": {"a": rows, "b": ""}, "val": {"v": rows}})
    there = convert(source, tmp_path / "new", middle)
    needs = ("boxes", "rboxes") if middle == "yolo" else None
    convert(tmp_path / "new", tmp_path / "back", "dota", needs)
    before, after = (open_dataset(path, ("boxes", "rboxes")) for path in (source, tmp_path / "back"))
    assert after.names == before.names == ("Ship", "big car")
    compared = 0
    for split in before.splits:
        for row in range(len(before.splits[split])):
            old, new = (data.splits[split].instances(row) for data in (before, after))
            if middle == "yolo":
                old = old[~old.ignore]
            assert new.labels.tolist() == old.labels.tolist()
            assert new.ignore.tolist() == old.ignore.tolist()
            if len(old):
                iou = pairwise_rbox_iou(old.shapes["rboxes"].data, new.shapes["rboxes"].data).diagonal()
                assert iou.min() >= 0.98
                compared += len(old)
    assert compared == (10 if middle == "yolo" else 12)
    assert (pairwise_rbox_iou(boxes.data, boxes.data).sum(1) < 5).all(), "they differ"
    assert set(there.lost) == ({"ignored"} if middle == "yolo" else set())


def test_boxes_through_every_format(tmp_path):
    pages = {
        "train": {"sub/b c": voc_object("dog", 4.5, 5, 30.25, 20) + voc_object("a cat", 1, 1, 9, 9, 1), "d": ""},
        "val": {"v": voc_object("dog", 0, 0, 60, 40)},
    }
    source = voc(tmp_path / "voc", pages)
    path = source
    for middle in ("labelme", "dota", "coco", "voc"):
        out = tmp_path / f"to-{middle}"
        written = convert(path, out, middle)
        assert written.objects == {"train": 2, "val": 1}, middle
        path = out
    before, after = read_whole(source), read_whole(path)
    assert after.names == before.names == ("a cat", "dog")
    for split, index in before.splits.items():
        other = after.splits[split]
        assert sorted(index.path(i).relative_to(source / "JPEGImages") for i in range(len(index))) == sorted(
            other.path(i).relative_to(path / "JPEGImages") for i in range(len(other))
        )
        rows = {index.path(i).name: i for i in range(len(index))}
        for j in range(len(other)):
            old, new = index.instances(rows[other.path(j).name]), other.instances(j)
            assert sorted(new.ignore.tolist()) == sorted(old.ignore.tolist())
            torch.testing.assert_close(new.shapes["boxes"].data.sort(0).values, old.shapes["boxes"].data.sort(0).values, atol=2e-3, rtol=0)


@pytest.mark.parametrize("middle", ["coco", "labelme", "yolo"])
def test_points_and_their_visibility(middle, tmp_path):
    names, flip = ["left_eye", "right_eye", "nose"], [1, 0, 2]
    category = {"id": 4, "name": "cat", "keypoints": names, "skeleton": [[1, 2], [2, 3]], "flip_idx": flip}
    points = [12.5, 8, 2, 20, 9.25, 1, 0, 0, 0]
    entry = {"id": 1, "image_id": 1, "category_id": 4, "bbox": [5, 5, 25, 20], "area": 300.0, "iscrowd": 0, "keypoints": points}
    for split in ("train", "val"):
        coco(tmp_path / "old", split, [{"id": 1, "file_name": f"{split}.jpg", "width": 60, "height": 40}], [entry], [category])
    there = convert(tmp_path / "old", tmp_path / "new", middle, ("boxes", "keypoints"))
    convert(tmp_path / "new", tmp_path / "back", "coco")
    data = open_dataset(tmp_path / "back", ("boxes", "keypoints"))
    objects = data.splits["val"].instances(0)
    torch.testing.assert_close(objects.shapes["keypoints"].data.reshape(-1), torch.tensor(points), atol=1e-3, rtol=0)
    torch.testing.assert_close(objects.shapes["boxes"].data, torch.tensor([[5.0, 5, 30, 25]]), atol=1e-3, rtol=0)
    spec = data.splits["val"].keypoints
    assert (spec.names, spec.flip) == (tuple(names), tuple(flip))
    assert ("skeleton" in there.lost) == (middle != "coco")
    assert spec.skeleton == (((0, 1), (1, 2)) if middle == "coco" else ())


def test_what_is_lost_is_counted_and_strict_writes_nothing(tmp_path):
    source = coco_set(tmp_path / "old")
    with pytest.warns(PellucidWarning, match=r"7 object\(s\) with an outline.*\[outlines\].*x\.jpg"):
        report = convert(source, tmp_path / "voc", "voc")
    assert report.lost["outlines"]["count"] == 7
    assert report.lost["class-ids"]["count"] == 2
    assert report.lost["image-ids"]["count"] == 3
    assert report.lost["fields"] == {"count": 1, "places": ["annotation/id: 1"]}  # that of the crowd is not its place
    assert set(report.lost) == {"outlines", "areas", "class-ids", "image-ids", "fields"}
    for to in ("voc", "yolo"):
        with pytest.raises(DataError, match="expected a format that holds all"):
            convert(coco_set(tmp_path / "same"), tmp_path / "none", to, strict=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "same", "voc"]
    turned_set = dota(tmp_path / "dota", {"train": {"a": "5 5 30 10 28 20 3 15 ship 0\n"}, "val": {"v": ""}})
    assert set(convert(turned_set, tmp_path / "flat", "voc").lost) == {"turned"}
    with pytest.raises(DataError, match=r"dota can hold, got .*'x'"):  # a quote at the end of a name is not read again
        convert(source, tmp_path / "obb", "dota")
    for file in (source / "annotations").iterdir():
        text(file, file.read_text().replace("'x'", "x"))
    assert set(convert(source, tmp_path / "obb", "dota").lost) >= {"enclosed"}
    mixed = yolo(tmp_path / "mixed", {"train": {"a": "0 .5 .5 .5 .5\n"}, "val": {"v": ""}})
    assert convert(mixed, tmp_path / "m", "labelme").lost == {}


def test_pictures_of_one_name_stay_apart(tmp_path):
    for name in ("a.jpg", "a.png"):
        picture(tmp_path / "old/train" / name)
    images = [{"id": i, "file_name": name, "width": 60, "height": 40} for i, name in enumerate(("a.jpg", "a.png"))]
    notes = [{"id": i, "image_id": i, "category_id": 1, "bbox": [i, i, 9, 9], "area": 81, "iscrowd": 0} for i in range(2)]
    for split in ("train", "val"):
        coco(tmp_path / "old", split, [dict(image) for image in images], notes, [{"id": 1, "name": "cat"}])
    report = convert(tmp_path / "old", tmp_path / "new", "yolo")
    assert report.lost["renamed"]["count"] == 2
    assert sorted(path.name for path in (tmp_path / "new/images/train").iterdir()) == ["a-2.png", "a.jpg"]
    assert convert(tmp_path / "new", tmp_path / "voc", "voc").lost["renamed"]["count"] == 2  # one folder for both splits
    assert [len(index.labels) for index in read_whole(tmp_path / "voc").splits.values()] == [2, 2]


def test_links_and_refusals(tmp_path):
    source = yolo(tmp_path / "old", {"train": {"a": "0 .5 .5 .5 .5\n"}, "val": {"v": ""}})
    convert(source, tmp_path / "new", "coco", link=True)
    link = tmp_path / "new/images/train/a.jpg"
    assert link.is_symlink()
    assert link.read_bytes() == (tmp_path / "old/images/train/a.jpg").read_bytes()
    with pytest.raises(UsageError, match="expected a new or empty folder"):
        convert(source, tmp_path / "new", "coco")
    with pytest.raises(UsageError, match="expected a new or empty folder"):
        convert(source, tmp_path / "old", "yolo")
    text(tmp_path / "old/labels/train/a.txt", "0 .1 .1 .5 .1 .5 .5\n")
    with pytest.raises(UsageError, match=r"task: expected one beside these YOLO labels.*a\.txt:1"):
        convert(source, tmp_path / "more", "coco")
    assert convert(source, tmp_path / "more", "coco", ("boxes", "polygons")).objects == {"train": 1, "val": 0}
    assert set(WRITERS) == {"coco", "yolo", "dota", "voc", "labelme"}


def test_a_joined_ring_fills_the_same_pixels():
    mask = ring_with_holes()
    mask[0:3, 52:59] = True  # and a second part
    rings = Polygons.from_masks([mask]).parts(0)
    assert len(rings) == 4
    one = joined(rings)
    assert (Polygons.from_rings([[one]]).rasterise(40, 60)[0].numpy() == mask).all()
    assert not rectangle_around([RING])[1]
    boxes = turned(3)
    for corner in boxes.corners().numpy():
        again, same = rectangle_around([corner])
        assert same
        iou = pairwise_rbox_iou(
            RBoxes.from_corners(torch.from_numpy(corner[None])).data, RBoxes.from_corners(torch.from_numpy(again[None])).data
        )
        assert iou.item() > 0.999


def test_many_parts_are_joined_without_delay():
    draw = np.random.default_rng(3)
    corners = draw.integers(0, 390, (900, 2)) + 0.0
    rings = [
        np.array(((x, y), (x + w, y), (x + w, y + w), (x, y + w))) for (x, y), w in zip(corners, draw.integers(3, 9, 900), strict=True)
    ]
    for some in (rings[:1], rings[:2], rings[:40], rings):
        begin = time.process_time()
        one = joined(some)
        assert time.process_time() - begin < 5, "a whole minute, where each part is measured against all others again"
        assert len(one) == sum(map(len, some)) + 2 * (len(some) - 1)
        pixels = [Polygons.from_rings([shape]).rasterise(400, 400)[0] for shape in ([one], some)]
        assert pixels[0].any()
        assert torch.equal(*pixels)


def test_labelme_flags_are_read(tmp_path):
    shape = {"label": "cat", "points": RING.tolist(), "shape_type": "polygon", "group_id": 1, "flags": {"difficult": True}}
    for split in ("train", "val"):
        labelme(tmp_path, split, split, [shape, {**shape, "group_id": 2, "flags": None}])
    data = open_dataset(tmp_path, ("boxes", "polygons"))
    assert data.splits["train"].ignore.tolist() == [True, False]
    assert codes(data.all_findings())["ignored"] == 2


def test_out_may_be_a_link_and_not_the_current_folder(tmp_path, monkeypatch):
    source = yolo(tmp_path / "old", {"train": {"a": "0 .5 .5 .5 .5\n"}, "val": {"v": ""}})
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    convert(source, tmp_path / "link", "coco")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/images/train/a.jpg").is_file()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UsageError, match="other than the current one"):
        convert(source, ".", "coco")
    convert(source, "below", "coco")
    assert (tmp_path / "here/below/images").is_dir()


def test_ids_that_collide_are_numbered_on(tmp_path):
    data = read_whole(coco_set(tmp_path))
    train, val = data.splits["train"], data.splits["val"]
    rows = [("train", train, 0), ("train", train, 0), ("train", val, 0), ("train", train, 1), ("train", val, 0)]
    assert [item.image_id for item in plan_of("coco", data, rows)["train"]] == [70, 71, 5, 12, 72]
    many = plan_of("coco", data, (("train", val, 0) for _ in range(300)))["train"]
    assert [item.image_id for item in many] == list(range(5, 305))


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (("cat", " cat"), ("dota", "voc", "labelme")),
        (("cat", ""), ("dota", "voc", "labelme")),
        (("cat", "a\nb"), ("dota", "voc", "labelme")),
        (("cat", "a\x01b"), ("voc",)),
        (("a b", "a  b"), ("dota",)),
        (("a  b", "a-b"), ("dota",)),
        (("cat", "_background_"), ("labelme",)),
        (("cat", "__ignore__"), ("labelme",)),
        (("cat", "'dog'"), ("dota",)),
        (("cat", "\ud800"), ("dota", "voc", "labelme")),
        (("Cat", "cat", "a b", "a-b", "x  y", " z ", "1", "<&>"), ()),
    ],
)
def test_names_that_a_reader_would_merge_or_drop_are_refused(names, refused, tmp_path):
    categories = [{"id": i, "name": name} for i, name in enumerate(names)]
    box = {"bbox": [5, 5, 20, 10], "area": 200, "iscrowd": 0}
    notes = [{"id": i, "image_id": 0, "category_id": i, **box} for i in range(len(names))]
    for split in ("train", "val"):
        coco(tmp_path / "old", split, [{"id": 0, "file_name": f"{split}.jpg", "width": 60, "height": 40}], notes, categories)
    for to in ("dota", "voc", "labelme"):
        if to in refused:
            with pytest.raises(DataError, match=f"expected class names that {to} (can hold|tells apart), got .*rename"):
                convert(tmp_path / "old", tmp_path / to, to)
            assert not (tmp_path / to).exists()
        else:
            convert(tmp_path / "old", tmp_path / to, to)
            assert read_whole(tmp_path / to).splits["train"].labels.tolist() == list(range(len(names)))

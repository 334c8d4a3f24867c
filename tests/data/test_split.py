"""data split, data stats and the hashes below both."""

import json

import numpy as np
import pytest
from PIL import Image

from pellucid.data import open_dataset
from pellucid.data.hashes import duplicates
from pellucid.data.readers import read_whole
from pellucid.data.split import deal, split
from pellucid.data.stats import stats
from pellucid.errors import DataError, PellucidWarning, UsageError

from .make import coco, text

SHARES = {"train": 0.75, "val": 0.25}


def scene(seed, size=(60, 40)):
    """A picture with large shapes that no other seed has."""
    cells = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(cells).resize(size, Image.Resampling.BICUBIC)


def photos(root, copies=()):
    """24 pictures in one split: 20 with class 0, every third of them with class 1, two with class 2; `copies` show what another shows."""
    (root / "images/train").mkdir(parents=True)
    for i in range(24):
        scene(dict(copies).get(i, i)).save(root / f"images/train/{i:02}.jpg", quality=95 if i % 2 else 70)
        rows = "0 .5 .5 .4 .4\n" + "1 .2 .2 .2 .2\n" * (i % 3 == 0) + "2 .7 .7 .2 .2\n" * (i in (5, 9))
        text(root / f"labels/train/{i:02}.txt", rows if i < 20 else "")
    return text(root / "data.yaml", "train: images/train\nnames: {0: a, 4: b, 7: c}\n")


def with_ids(root):
    """The rows of `photos` by the ids of the YAML."""
    for file in (root / "labels/train").iterdir():
        swap = {"0": "0", "1": "4", "2": "7"}
        file.write_text("".join(swap[line[0]] + line[1:] + "\n" for line in file.read_text().splitlines()))


def stems(folder):
    data = read_whole(folder)
    return {name: sorted(index.path(row).stem for row in range(len(index))) for name, index in data.splits.items()}


def test_classes_are_shared_out_and_copies_stay_together(tmp_path):
    copies = [(13, 2), (17, 2), (22, 7)]
    source = photos(tmp_path / "old", copies)
    with_ids(tmp_path / "old")
    dealt = split(source, tmp_path / "new", SHARES, seed=3)
    assert (dealt.groups, dealt.grouped) == (2, 5)
    sides = stems(tmp_path / "new")
    assert sorted(sides["train"] + sides["val"]) == [f"{i:02}" for i in range(24)]
    assert dealt.written.images == {name: len(names) for name, names in sides.items()}
    assert 5 <= len(sides["val"]) <= 7
    for group in (("02", "13", "17"), ("07", "22")):
        assert any(set(group) <= set(names) for names in sides.values())
    assert dealt.classes["a"] == {"train": 15, "val": 5}
    assert dealt.classes["b"] == {"train": 5, "val": 2}
    assert dealt.classes["c"] in ({"train": 1, "val": 1}, {"train": 2, "val": 0})
    data = open_dataset(tmp_path / "new", strict=True)
    assert (data.names, data.category_ids) == (("a", "b", "c"), (0, 4, 7))
    assert stats(data).content["copies"]["leaks"] == 0


def test_classes_of_one_name_are_counted_apart(tmp_path):
    source = photos(tmp_path / "old")
    with_ids(tmp_path / "old")
    text(source, source.read_text().replace("4: b", "4: a"))
    with pytest.warns(PellucidWarning, match="name-twice"):
        dealt = split(source, tmp_path / "new", SHARES)
    assert {name: sum(counts.values()) for name, counts in dealt.classes.items()} == {"a (id 0)": 20, "a (id 4)": 7, "c": 2}


def test_the_same_seed_deals_the_same(tmp_path):
    source = photos(tmp_path / "old")
    with_ids(tmp_path / "old")
    made = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        split(source, tmp_path / name, SHARES, seed, link=True)
        made[name] = stems(tmp_path / name)
    assert made["a"] == made["b"] != made["c"]
    split(tmp_path / "a", tmp_path / "again", {"train": 0.5, "val": 0.25, "test": 0.25})
    assert {name: len(names) for name, names in stems(tmp_path / "again").items()} == {"train": 12, "val": 6, "test": 6}


def test_what_cannot_be_split_is_refused(tmp_path):
    source = photos(tmp_path / "old", [(i, 0) for i in range(24)])
    with_ids(tmp_path / "old")
    with pytest.raises(DataError, match="expected enough pictures for val, got 24 in 1 groups"):
        split(source, tmp_path / "new", SHARES)
    assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError, match="new or empty folder"):
        split(source, tmp_path / "old", SHARES)


def test_dealing_holds_the_shares_for_any_classes():
    rng = np.random.default_rng(0)
    counts = rng.poisson((2, 0.3, 0.05), (400, 3))
    assert (counts.sum(0) > 8).all()
    sides = deal([[i] for i in range(400)], counts, {"train": 0.7, "val": 0.2, "test": 0.1}, 5)
    for k, share in enumerate((0.7, 0.2, 0.1)):
        assert abs((sides == k).mean() - share) < 0.01
        assert (np.abs(counts[sides == k].sum(0) / counts.sum(0) - share) < 0.06).all()


def test_copies_are_found_and_others_are_not(tmp_path):
    one = scene(0, (300, 200))
    variants = {
        "a.jpg": one,
        "b.png": one,
        "c.jpg": one.resize((150, 100)),
        "d.webp": one.point(lambda v: min(255, v + 6)),
        "e.png": one.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        "f.png": one.crop((60, 40, 300, 200)),
        "g.png": scene(1, (300, 200)),
        "h.png": one.convert("L"),
    }
    for name, image in variants.items():
        image.save(tmp_path / name)
    text(tmp_path / "i.jpg", b"\xff\xd8 not a picture")
    paths = sorted(tmp_path.iterdir())
    assert [[paths[i].name for i in group] for group in duplicates(paths)] == [["a.jpg", "b.png", "c.jpg", "d.webp", "h.png"]]
    assert duplicates([]) == []
    flat = [tmp_path / "x.png", tmp_path / "y.png", tmp_path / "z.png"]
    for path, grey in zip(flat, (40, 40, 200), strict=True):
        Image.new("L", (50, 50), grey).save(path)
    assert duplicates(flat) == [[0, 1]], "one hash, two greys"


def test_stats_count(tmp_path):
    source = photos(tmp_path, [(3, 2)])
    with_ids(tmp_path)
    (tmp_path / "images/val").mkdir()
    scene(1).save(tmp_path / "images/val/v.png")
    text(tmp_path / "labels/val/v.txt", "0 .5 .5 .4 .4\n0 .1 .1 .002 .1\n")
    text(source, source.read_text() + "val: images/val\n")
    found = stats(source, imgsz=600)
    content = json.loads(found.to_json())
    assert set(content) == {"data", "format", "imgsz", "splits", "classes", "copies"}
    train, val = content["splits"]["train"], content["splits"]["val"]
    assert (train["images"], train["empty"], train["objects"], train["tiny"]) == (24, 4, 29, 0)
    assert (val["objects"], val["tiny"], val["small"], val["medium"], val["large"]) == (2, 1, 1, 0, 1)
    assert train["width"] == {"min": 60, "p5": 60, "median": 60, "p95": 60, "max": 60}
    assert train["objects_per_image"]["max"] == 3
    assert train["aspect"]["median"] == pytest.approx(1.5)
    assert train["side"]["max"] == pytest.approx((240 * 160) ** 0.5, rel=1e-3)
    assert content["classes"][2] == {"id": 7, "name": "c", "train": {"objects": 2, "images": 2}, "val": {"objects": 0, "images": 0}}
    assert content["copies"]["leak_examples"] == [["train/01.jpg", "val/v.png"]]
    assert content["copies"]["examples"] == [["train/02.jpg", "train/03.jpg"]]
    assert (content["copies"]["groups"], content["copies"]["images"], content["copies"]["leaks"]) == (2, 4, 1)
    lines = "\n".join(found.lines())
    assert "4 pictures in 2 groups show the same; 1 groups are in more than one split" in lines
    assert "1 (50.0%)" in lines
    assert stats(source, copies=False).content["copies"] is None


def test_a_picture_with_other_objects_in_another_split_is_refused(tmp_path):
    (tmp_path / "old/images").mkdir(parents=True)
    for i in range(10):
        scene(i).save(tmp_path / f"old/images/{i}.jpg")
    kinds = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]

    def label(name, numbers, kind):
        images = [{"id": i, "file_name": f"{i}.jpg", "width": 60, "height": 40, "paint": False} for i in numbers]
        notes = [{"id": i, "image_id": i, "category_id": kind, "bbox": [1, 1, 9, 9], "area": 81, "iscrowd": 0} for i in numbers]
        coco(tmp_path / "old", name, images, notes, kinds)

    label("train", range(8), 1)
    label("val", range(4, 10), 2)
    with pytest.raises(DataError, match=r"4\.jpg: expected the same objects .* others in train than in val; bring"):
        split(tmp_path / "old", tmp_path / "new", SHARES)
    assert not (tmp_path / "new").exists()
    label("val", range(4, 10), 1)
    assert split(tmp_path / "old", tmp_path / "new", SHARES).classes["a"] == {"train": 8, "val": 2}

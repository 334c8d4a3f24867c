"""Tiles: where they lie, what they hold, and predictions put together again."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pellucid.data import open_dataset
from pellucid.data.readers import read_dataset
from pellucid.data.tile_files import write_tiles
from pellucid.data.tiles import EDGE, Tiles, TileSet, Window, _at_seam, cut, merge, windows
from pellucid.errors import PellucidWarning, UsageError
from pellucid.geometry import Boxes
from pellucid.geometry.keypoints import Keypoints
from pellucid.geometry.masks import Masks
from pellucid.geometry.polygons import Polygons
from pellucid.geometry.rboxes import RBoxes, rbox_bounds, rbox_corners
from pellucid.types import Instances

from .make import codes, text

NEEDS = ("boxes", "rboxes")


@given(st.integers(1, 500), st.integers(1, 500), st.integers(20, 120), st.floats(0, 0.9))
@settings(deadline=None)
def test_tiles_cover_the_picture_and_overlap(height, width, tile, share):
    overlap = int(tile * share)
    places = windows(height, width, tile, overlap)
    seen = np.zeros((height, width), int)
    for place in places:
        assert place.width == min(tile, width)
        assert place.height == min(tile, height)
        seen[place.top : place.top + place.height, place.left : place.left + place.width] += 1
    assert seen.min() >= 1
    assert len({(place.left, place.top) for place in places}) == len(places)
    lefts = sorted({place.left for place in places})
    assert all(b - a <= tile - overlap for a, b in pairwise(lefts))
    assert lefts[-1] + places[-1].width == width


def objects(rboxes, labels=None, scores=None, size=(10_000, 10_000)):
    data = torch.as_tensor(rboxes, dtype=torch.float32).reshape(-1, 5)
    labels = torch.zeros(len(data), dtype=torch.int64) if labels is None else torch.as_tensor(labels)
    shapes = {"boxes": Boxes(rbox_bounds(data)).clip(*size), "rboxes": RBoxes(data)}
    if scores is None:
        return Instances(labels, shapes, ignore=torch.zeros(len(data), dtype=torch.bool))
    return Instances(labels, shapes, torch.as_tensor(scores, dtype=torch.float32))


def test_objects_are_kept_by_what_a_tile_shows():
    """Whole in the left tile, a part of a tenth in the right one, and one larger than any tile."""
    places = windows(100, 180, 100, 20)
    assert places == [Window(0, 0, 100, 100), Window(80, 0, 100, 100)]
    whole, both, wide, gone = [70.0, 50, 24, 10, 0.0], [90, 20, 10, 8, 0.3], [90, 80, 160, 10, 0.0], [20, 20, 10, 10, 0.0]
    left, right = cut(objects([whole, both, wide, gone], [0, 1, 2, 3]), places)
    assert left.labels.tolist() == [0, 1, 2, 3]
    assert left.ignore.tolist() == [False, False, False, False]
    assert right.labels.tolist() == [0, 1, 2]
    assert right.ignore.tolist() == [True, False, False]  # of the widest either tile shows as much as any
    assert right.shapes["rboxes"].data[1].tolist() == pytest.approx([10, 20, 10, 8, 0.3])  # not refitted
    assert right.shapes["boxes"].data[0].tolist() == [0, 45, 2, 55]
    one = cut(objects([[75.0, 50, 60, 10, 0.0]]), places)
    assert [part.ignore.tolist() for part in one] == [[False], [True]]


def test_an_outline_that_crosses_itself_is_kept_by_what_it_fills():
    """A bow-tie, whose lobes run opposite ways: one lobe and a little more in the left tile, four fifths of it in the right one."""
    bow = Polygons.from_parts([[[(60, 20), (140, 80), (140, 20), (60, 80)]]])
    whole = Instances(torch.tensor([1]), {"boxes": Boxes(bow.bounds()), "polygons": bow})
    left, right = cut(whole, [Window(0, 0, 105, 100), Window(70, 0, 105, 100)])
    assert left.labels.tolist() == right.labels.tolist() == [1]
    assert left.ignore.tolist() == [True]
    assert right.ignore.tolist() == [False]
    assert right.shapes["boxes"].data[0].tolist() == [0, 20, 70, 80]


def every_shape(offset):
    """One object of each kind of shape around (530, 40) less `offset`, in a tile."""
    centre = torch.tensor([530.0, 40]) - offset
    box = torch.cat((centre - 10, centre + 10))[None]
    ring = torch.stack((box[0, [0, 1]], box[0, [2, 1]], box[0, [2, 3]], box[0, [0, 3]])).numpy()
    shapes = {
        "boxes": Boxes(box),
        "rboxes": RBoxes(torch.tensor([[*centre.tolist(), 20, 20, 0.0]])),
        "keypoints": Keypoints(torch.tensor([[[*centre.tolist(), 2.0], [*(centre + 5).tolist(), 1.0]]]), None),
        "polygons": Polygons.from_parts([[ring]]),
        "masks": Masks.of_prototypes(torch.ones(1, 1), torch.ones(1, 30, 150), box),
    }
    return Instances(torch.tensor([0]), shapes, torch.tensor([0.9]))


def test_every_shape_moves_with_its_tile():
    """An object in the tile at x = 512: box, corners, points, polygon and mask are all where the picture has them."""
    places = [Window(0, 0, 600, 100), Window(512, 0, 600, 100)]
    merged = merge([every_shape(torch.tensor([0.0, 0]))[:0], every_shape(torch.tensor([512.0, 0]))], places, (100, 1112))
    assert len(merged) == 1
    for name, shape in merged.shapes.items():
        if name != "keypoints":
            assert shape.bounds().tolist() == [pytest.approx([520, 30, 540, 50], abs=1e-3)], name
    assert merged.shapes["rboxes"].corners()[0].amin(0).tolist() == pytest.approx([520, 30], abs=1e-3)
    assert merged.shapes["keypoints"].data[0, :, :2].tolist() == [[530, 40], [535, 45]]
    ys, xs = merged.shapes["masks"].dense(100, 1112)[0].nonzero().T
    assert (xs.min(), xs.max(), ys.min(), ys.max()) == (520, 539, 30, 49)
    assert merged.shapes["polygons"].rasterise(100, 1112)[0].sum() == 400


PLACES = windows(100, 180, 100, 40)  # at 0 and 80: hence 0, 60, 80


def test_an_object_on_a_seam_is_reported_once():
    """Turned, seen whole by both; and cut by one of them, which is the surer of it."""
    assert [place.left for place in PLACES] == [0, 60, 80]
    truth = torch.tensor([[88.0, 30, 16, 8, 0.7], [105, 70, 30, 10, 0.4], [20, 50, 10, 6, 2.0]])
    left = objects(truth[[0, 2]] + torch.tensor([0.3, -0.2, 0.5, 0.2, 0.02]), scores=[0.8, 0.6])
    piece = objects([[96.0, 66.5, 12, 10, 0.4]], scores=[0.99])  # of the second, up to the left tile's edge
    middle = objects(truth[:2] - torch.tensor([60.0, 0, 0, 0, 0]), scores=[0.7, 0.5])
    right = objects(truth[:2] - torch.tensor([80.0, 0, 0, 0, 0]), scores=[0.9, 0.4])
    merged = merge([Instances.cat([left, piece]), middle, right], PLACES, (100, 180))
    assert len(merged) == 3
    assert merged.scores.tolist() == pytest.approx([0.8, 0.6, 0.5])
    found = merged.shapes["rboxes"].data
    torch.testing.assert_close(found[0], truth[0], atol=0.6, rtol=0)
    torch.testing.assert_close(found[2], truth[1])


def test_neighbours_and_other_classes_are_not_taken_for_one():
    """Boxes around two turned neighbours overlap; they themselves do not."""
    pair = torch.tensor([[90.0, 40, 40, 6, math.pi / 4], [97, 33, 40, 6, math.pi / 4]])
    left, middle = objects(pair, scores=[0.9, 0.8]), objects(pair - torch.tensor([60.0, 0, 0, 0, 0]), scores=[0.7, 0.6])
    nothing = objects([], scores=[])
    assert len(merge([left, middle, nothing], PLACES, (100, 180))) == 2
    other = objects(pair - torch.tensor([60.0, 0, 0, 0, 0]), labels=[1, 1], scores=[0.7, 0.6])
    assert len(merge([left, other, nothing], PLACES, (100, 180))) == 4
    crowd = objects([[20.0, 40, 30, 10, 0.1], [21, 40, 30, 10, 0.1]], scores=[0.9, 0.8])  # one tile saw two: they stay
    assert len(merge([crowd, nothing, nothing], PLACES, (100, 180))) == 2
    assert len(merge([nothing, nothing, nothing], PLACES, (100, 180))) == 0


def test_upright_boxes_alone_are_merged_too():
    def boxes(rows, scores):
        return Instances(torch.zeros(len(rows), dtype=torch.int64), {"boxes": Boxes(torch.tensor(rows))}, torch.tensor(scores))

    left = boxes([[70.0, 20, 100, 50], [10, 10, 30, 30]], [0.95, 0.7])  # the first cut at the tile's edge
    middle = boxes([[10.0, 20, 60, 50]], [0.6])
    merged = merge([left, middle, boxes([[0.0, 20, 40, 50]], [0.3])], PLACES, (100, 180))
    assert merged.shapes["boxes"].data.tolist() == [[10, 10, 30, 30], [70, 20, 120, 50]]


def test_pairs_are_looked_for_in_chunks(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    parts = []
    for _ in PLACES:
        data = torch.rand(60, 5, generator=generator) * torch.tensor([100, 100, 20, 8, 3]) + torch.tensor([0, 0, 4, 4, 0])
        parts.append(objects(data, torch.randint(0, 2, (60,), generator=generator), torch.rand(60, generator=generator), size=(100, 100)))
    whole = merge(parts, PLACES, (100, 180))
    assert 50 < len(whole) < 178
    monkeypatch.setattr("pellucid.data.tiles.PAIRS", 200)
    assert torch.equal(merge(parts, PLACES, (100, 180)).shapes["rboxes"].data, whole.shapes["rboxes"].data)


def photo(path, width=150, height=90):
    y, x = np.mgrid[:height, :width]
    pixels = np.stack((x, y * 2, 120 + 100 * np.sin(x / 9) * np.cos(y / 7)), -1).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def dota_set(root):
    rows = {"a": [[40, 30, 30, 10, 0.4], [75, 60, 20, 12, 1.2], [70, 20, 50, 8, 0.0]], "b": []}
    for split in ("train", "val"):
        for stem, boxes in rows.items():
            photo(root / split / "images" / f"{stem}.png")
            corners = rbox_corners(torch.tensor(boxes, dtype=torch.float64).reshape(-1, 5)).flatten(1).tolist()
            lines = [" ".join(f"{v:.3f}" for v in row) + f" small vehicle {int(i == 1)}\n" for i, row in enumerate(corners)]
            text(root / split / "labelTxt" / f"{stem}.txt", "".join(lines))
    return root


def test_dota_tiles_hold_pixels_and_labels(tmp_path):
    source = dota_set(tmp_path / "whole")
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    report = write_tiles(source, tmp_path / "tiles", tile=80, overlap=20, visible=0.7)
    assert before == {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert report.tiles == {"train": 2 * 3 * 2, "val": 12}
    data = open_dataset(tmp_path / "tiles", NEEDS, strict=True)
    assert data.names == ("small vehicle",)
    whole = read_dataset(source, NEEDS).splits["train"]
    made = data.splits["train"]
    where = json.loads((tmp_path / "tiles/tiles.json").read_text())["from"]["train"]
    pixels = np.asarray(Image.open(whole.path(0)))
    seen = 0
    for row in range(len(made)):
        name, left, top = where[made.path(row).stem]
        if name.endswith("b.png"):
            assert len(made.instances(row)) == 0
            continue
        assert np.array_equal(np.asarray(Image.open(made.path(row))), pixels[top : top + 80, left : left + 80])
        expected = cut(whole.instances(0), [Window(*place) for place in ((x, y, 80, 80) for x in (0, 60, 70) for y in (0, 10))])
        expected = expected[[(x, y) for x in (0, 60, 70) for y in (0, 10)].index((left, top))]
        found = made.instances(row)
        assert found.ignore.tolist() == expected.ignore.tolist()
        torch.testing.assert_close(found.shapes["rboxes"].data, expected.shapes["rboxes"].data, atol=2e-3, rtol=0)
        seen += len(found)
    assert seen > 10
    assert report.objects["train"] == seen


def test_yolo_tiles(tmp_path):
    photo(tmp_path / "whole/images/train/a.jpg")
    corners = rbox_corners(torch.tensor([[40.0, 30, 30, 10, 0.4], [60, 20, 30, 8, 0.0]])) / torch.tensor([150, 90])
    lines = [" ".join(("7", *(f"{v:.7f}" for v in row))) + "\n" for row in corners.flatten(1).tolist()]
    text(tmp_path / "whole/labels/train/a.txt", "".join(lines))
    text(tmp_path / "whole/data.yaml", "train: images/train\nnames: {3: ship, 7: 'no'}\n")
    report = write_tiles(tmp_path / "whole", tmp_path / "tiles", tile=80, overlap=20, visible=0.7)
    assert report.left_out["train"] > 0
    data = open_dataset(tmp_path / "tiles", NEEDS, ("train",), strict=True)
    assert data.names == ("ship", "no")
    assert data.category_ids == (3, 7)
    index = data.splits["train"]
    first = next(row for row in range(len(index)) if index.path(row).name == "a__0_0.jpg")
    found = index.instances(first)
    assert found.labels.tolist() == [1, 1]
    assert found.shapes["rboxes"].data[0].tolist() == pytest.approx([40, 30, 30, 10, 0.4], abs=1e-3)
    assert codes(data.all_findings()).keys() <= {"class-absent", "ignored"}


def test_tiles_of_dota_keep_first_corners_degrees_and_header_lines(tmp_path):
    """Corners begin where the file began, run as they ran there, and stay difficult to the stated degree."""
    rows = [
        "30 10 30 20 10 20 10 10 ship 2",
        "8 40 20 40 20 34 8 34 ship 0",
        "12 50 12 60 30 60 30 50 ship",
        "60 30 75 45 65 55 50 40 ship 2",
    ]
    lines = ["imagesource:GoogleEarth", "gsd:0.146", *rows, "40 5 140 5 140 20 40 20 ship 1", "40 60 140 60 140 80 40 80 ship 0"]
    for split in ("train", "val"):
        photo(tmp_path / "whole" / split / "images/a.png")
        text(tmp_path / "whole" / split / "labelTxt/a.txt", "\n".join(lines))
    write_tiles(tmp_path / "whole", tmp_path / "tiles", tile=90, overlap=20, visible=0.7)
    told = (tmp_path / "tiles/train/labelTxt/a__0_0.txt").read_text().replace(".000", "").splitlines()
    assert told[:2] == lines[:2]
    assert told[2:6] == [rows[0], rows[1], f"{rows[2]} 0", rows[3]]
    assert told[6:] == [lines[6], f"{lines[7][:-1]}1"], "half of an object is to be ignored"
    right = (tmp_path / "tiles/train/labelTxt/a__60_0.txt").read_text().replace(".000", "").splitlines()
    assert right == [*lines[:2], "0 30 15 45 5 55 -10 40 ship 2", "-20 5 80 5 80 20 -20 20 ship 1", "-20 60 80 60 80 80 -20 80 ship 0"]


def test_tiles_of_yolo_keep_first_corners_and_the_keys_of_others(tmp_path):
    photo(tmp_path / "whole/images/train/a.jpg", 40, 30)
    text(tmp_path / "whole/labels/train/a.txt", "0 .5 .25 .5 .5 .25 .5 .25 .25\n")
    source = text(tmp_path / "whole/data.yaml", "train: images/train\nnames: [ship]\nlicense: CC0\n")
    write_tiles(source, tmp_path / "tiles", tile=80, overlap=20, visible=0.7)
    numbers = [float(field) for field in (tmp_path / "tiles/labels/train/a__0_0.txt").read_text().split()]
    assert numbers == [0, 0.5, 0.25, 0.5, 0.5, 0.25, 0.5, 0.25, 0.25]
    assert yaml.safe_load((tmp_path / "tiles/data.yaml").read_text())["license"] == "CC0"
    text(source, source.read_text() + "maker: !!python/name:os.system x\n")
    with pytest.warns(PellucidWarning, match=r"expected plain values in YAML .*None of its keys"):
        write_tiles(source, tmp_path / "more", tile=80, overlap=20, visible=0.7)


def test_pictures_of_one_name_have_tiles_of_their_own(tmp_path):
    """The name that a number gives one picture may be another's own, before it or after it."""
    names = ("a/x-2.png", "a/x.png", "b/x.png", "c/x-2.jpg", "c/x-3.png", "c/x.png")
    for number, name in enumerate(names):
        photo(tmp_path / "whole/images/train" / name, width=40 + number, height=30)
        text((tmp_path / "whole/labels/train" / name).with_suffix(".txt"), f"{number} .2 .2 .8 .2 .8 .8 .2 .8\n")
    text(tmp_path / "whole/data.yaml", f"train: images/train\nnames: [{', '.join(f'c{i}' for i in range(len(names)))}]\n")
    report = write_tiles(tmp_path / "whole", tmp_path / "tiles", tile=80, overlap=20, visible=0.7)
    assert report.tiles == report.images == report.objects == {"train": len(names)}
    where = json.loads((tmp_path / "tiles/tiles.json").read_text())["from"]["train"]
    assert sorted(source for source, *_ in where.values()) == [f"images/train/{name}" for name in sorted(names)]
    index = open_dataset(tmp_path / "tiles", NEEDS, ("train",), strict=True).splits["train"]
    assert len(index) == len(names)
    for row in range(len(index)):
        source, *_ = where[index.path(row).stem]
        number = names.index(source.removeprefix("images/train/"))
        assert index.instances(row).labels.tolist() == [number]
        assert index.sizes[row].tolist() == [30, 40 + number]


def test_refusals(tmp_path):
    source = dota_set(tmp_path / "whole")
    with pytest.raises(UsageError, match="new or empty folder"):
        write_tiles(source, source, 80, 20, 0.7)


def test_tiles_of_an_index_are_an_index(tmp_path):
    index = read_dataset(dota_set(tmp_path), NEEDS).splits["val"]
    tiles = Tiles.of(index, 80, 20)
    assert len(tiles.index) == len(tiles.rows) == 12
    assert tiles.rows == (0,) * 6 + (1,) * 6
    assert tiles.index.sizes.tolist() == [[80, 80]] * 12
    assert tiles.index.class_counts().tolist() == [int((~tiles.index.ignore).sum())]
    assert tiles.index.class_counts()[0] > 4
    assert {tuple(shape) for shape in [tuple(tiles.index.instances(0).shapes)]} == {NEEDS}
    sample = TileSet(tiles, 160)[1]
    assert sample.layers[0].pixels.shape == (160, 160, 3)
    pixels = np.asarray(Image.open(index.path(0)))[0:80, 60:140]
    small = np.asarray(Image.fromarray(sample.layers[0].pixels.numpy()).resize((80, 80), Image.Resampling.BOX))
    assert np.abs(small.astype(int) - pixels).mean() < 3
    torch.testing.assert_close(sample.instances.shapes["rboxes"].data[:, :4], 2 * tiles.index.instances(1).shapes["rboxes"].data[:, :4])


@pytest.mark.parametrize(("more", "whole"), [(2 * int(EDGE) + 1, True), (0, False)])
def test_an_object_away_from_seams_needs_more_than_its_size(more, whole):
    """Wherever it lies, some tile sees it far enough from its seams to be sure that none has cut it."""
    side, tile, length = 20, 64, 300
    places = windows(tile, length, tile, side + more)
    assert len(places) > 4
    clear = []
    for start in np.arange(0, length - side + 0.25, 0.25):
        box = torch.tensor([[start, 20.0, start + side, 40.0]])
        seen = [place for place in places if place.left <= start and start + side <= place.left + place.width]
        assert seen
        parts = [
            Instances(torch.zeros(1, dtype=torch.int64), {"boxes": Boxes(box - torch.tensor([place.left, 0.0] * 2))}) for place in seen
        ]
        clear.append(any(not _at_seam(part, place, (tile, length)) for part, place in zip(parts, seen, strict=True)))
    assert all(clear) is whole
    assert any(clear)

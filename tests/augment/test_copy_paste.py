"""Copy-paste: pixels, outlines, boxes and labels tell the same, whatever meets."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from pellucid.augment.apply import apply
from pellucid.augment.copy_paste import Cutting, Guest, cut_out, hide
from pellucid.augment.paste import move
from pellucid.augment.plan import View, plan
from pellucid.augment.presets import OFF, PRESETS, AugmentConfig
from pellucid.data.collate import collate
from pellucid.data.dataset import TrainingSet
from pellucid.geometry import Boxes, Polygons
from pellucid.geometry.keypoints import Keypoints
from pellucid.tasks import TASKS
from pellucid.types import Instances
from tests.augment.fakes import Memory, noise

SIZE = 96
GROUND = 60  # grey of a picture; object k of picture r is painted in its own colour


def colour(row: int, k: int) -> tuple[int, int, int]:
    return 100 + 10 * row, 90 + 25 * k, 200


@dataclass
class Outlined(Memory):
    """Pictures with painted objects and their outlines."""

    outlines: tuple[Polygons, ...] = ()

    def instances(self, row):
        polygons = self.outlines[row]
        labels = torch.full((len(polygons),), row)
        shapes = {"boxes": Boxes(polygons.bounds()), "polygons": polygons}
        return Instances(labels, shapes, ignore=torch.full((len(polygons),), row in self.ignore))


def painted(count: int, seed: int = 0, objects: int = 4) -> Outlined:
    """Rectangles on whole pixels, one of them with a hole, none over another."""
    draw = np.random.default_rng(seed)
    images, outlines = [], []
    for row in range(count):
        image, parts, holes = np.full((SIZE, SIZE, 3), GROUND, np.uint8), [], []
        for k in range(0 if row == 3 else objects):
            x, y = draw.integers(0, 8, 2) + np.array([k % 2, k // 2]) * (SIZE // 2)
            w, h = draw.integers(16, 36, 2)
            image[y : y + h, x : x + w] = colour(row, k)
            parts.append([[x, y, x + w, y, x + w, y + h, x, y + h]])
            holes.append([])
            if k == 1:
                image[y + 4 : y + 9, x + 4 : x + 9] = GROUND
                holes[-1].append([x + 4, y + 4, x + 9, y + 4, x + 9, y + 9, x + 4, y + 9])
        images.append(image)
        outlines.append(Polygons.from_parts(parts, holes))
    return Outlined(images, [polygons.bounds().numpy() for polygons in outlines], outlines=tuple(outlines))


ALWAYS = replace(OFF, copy_paste=1.0)


def sample(data: Memory, row: int, config: AugmentConfig = ALWAYS, seed: int = 0, close: int | None = None):
    return TrainingSet(data, data, config, SIZE, seed, close)[(0, row)]


@pytest.mark.parametrize("config", [ALWAYS, replace(ALWAYS, mosaic=1.0)])
@pytest.mark.parametrize("row", [0, 1, 3])
def test_every_outline_holds_its_objects_pixels_and_no_others(config, row):
    """The picture is unscaled, so each object's pixels are those of one colour, to the last."""
    data = painted(5)
    met = pasted = 0
    for seed in range(6):
        made = sample(data, row, config, seed)
        image = apply(collate([made], SIZE, lambda objects, size: {}, warped=True)).images[0].permute(1, 2, 0).numpy()
        masks = made.instances.shapes["polygons"].rasterise(SIZE, SIZE).numpy()
        assert masks.any((1, 2)).all()
        assert masks.sum(0).max() <= 1  # nothing is taught twice
        for mask, label in zip(masks, made.instances.labels.tolist(), strict=True):
            seen = np.unique(image[mask], axis=0)
            assert len(seen) == 1
            assert seen[0][0] == 100 + 10 * label
        painted_pixels = (image != GROUND).any(-1) & (image != 114).any(-1)
        taught = masks.any(0)
        assert not (taught & ~painted_pixels).any()
        met += int(taught.sum())
        pasted += int((made.instances.labels != row).sum())
        assert torch.equal(made.instances.shapes["boxes"].data, made.instances.shapes["polygons"].bounds())
    assert met > 2000
    assert pasted > 5


def test_counts_agree_and_rows_stay_together():
    data = painted(5)
    for seed in range(8):
        made = sample(data, 1, replace(AugmentConfig(), copy_paste=1.0, degrees=10.0, mixup=0.5), seed).instances
        lengths = {len(made.labels), len(made.ignore), *(len(shape) for shape in made.shapes.values())}
        assert len(lengths) == 1
        targets = TASKS["segment"]().targets(made, SIZE)
        assert len(targets["masks"]) == len(made)


def test_what_is_hidden_is_cut_and_what_is_hidden_too_much_is_dropped():
    """A cutting over the left 3/4 of one object, all but a strip of another, none of a third."""
    square = Polygons.from_parts([[[0, 0, 40, 0, 40, 40, 0, 40]], [[10, 50, 31, 50, 31, 70, 10, 70]], [[60, 60, 80, 60, 80, 80, 60, 80]]])
    objects = Instances(torch.tensor([0, 1, 2]), {"boxes": Boxes(square.bounds()), "polygons": square})
    over = Polygons.from_parts([[[0, 0, 30, 0, 30, 90, 0, 90]]])
    pasted = Instances(torch.tensor([7]), {"boxes": Boxes(over.bounds()), "polygons": over})
    cutting = Cutting(np.zeros((96, 96, 3), np.uint8), over.rasterise(96, 96)[0].numpy(), 0, 0, pasted)
    rest, left = hide(objects, cutting)
    assert left.tolist() == pytest.approx([0.25, 1 / 21, 1])
    assert rest.shapes["polygons"].area().tolist() == [400, 20, 400]
    view = View((0,), (0, 0), 96, torch.eye(3, dtype=torch.float64), 96)
    seen = move(view, [objects], [(96, 96)], [(96, 96)], cutting)
    assert seen.labels.tolist() == [0, 2, 7]
    assert seen.shapes["boxes"].data.tolist() == [[30, 0, 40, 40], [60, 60, 80, 80], [0, 0, 30, 90]]


def test_an_object_split_in_two_stays_one():
    wide = Polygons.from_parts([[[0, 10, 90, 10, 90, 30, 0, 30]]])
    bar = Polygons.from_parts([[[40, 0, 50, 0, 50, 90, 40, 90]]])
    objects = Instances(torch.tensor([0]), {"boxes": Boxes(wide.bounds()), "polygons": wide})
    cutting = Cutting(np.zeros((96, 96, 3), np.uint8), bar.rasterise(96, 96)[0].numpy(), 0, 0, objects)
    rest, left = hide(objects, cutting)
    assert len(rest) == 1
    assert len(rest.shapes["polygons"].parts(0)) == 2
    assert left.item() == pytest.approx(8 / 9)


def test_pictures_with_and_without_outlines_mix():
    """Objects without a ring are never pasted, pictures without objects lend none, a set without outlines is left alone."""
    data = painted(5)
    data.outlines = (data.outlines[0], Polygons.from_parts([[], []]), *data.outlines[2:])
    for row in range(5):
        for seed in range(10):
            made = sample(data, row, ALWAYS, seed).instances
            assert not (made.labels == 1).any()
            assert (made.shapes["polygons"].area() > 0).all()
    boxes_only = noise(4, SIZE)
    for row in range(4):
        with_, without = sample(boxes_only, row, ALWAYS), sample(boxes_only, row, OFF)
        assert torch.equal(with_.instances.shapes["boxes"].data, without.instances.shapes["boxes"].data)
        assert torch.equal(with_.layers[0].pixels, without.layers[0].pixels)


def test_ignored_objects_are_not_pasted():
    data = painted(3)
    data.ignore = [1, 2]
    for seed in range(10):
        assert set(sample(data, 0, ALWAYS, seed).instances.labels.tolist()) == {0}


def test_the_choice_depends_on_seed_epoch_and_row_alone():
    data = painted(5)
    first = sample(data, 0, ALWAYS, 1)
    again = sample(painted(5), 0, ALWAYS, 1)
    assert torch.equal(first.instances.shapes["polygons"].points, again.instances.shapes["polygons"].points)
    assert torch.equal(first.layers[0].pixels, again.layers[0].pixels)
    guests = {plan(100, ALWAYS, SIZE, 0, epoch, 5).views[0].guest for epoch in range(50)}
    assert len(guests) == 50
    assert {guest.mirror for guest in guests} == {True, False}


def test_other_draws_do_not_change_with_copy_paste():
    for epoch in range(20):
        with_ = plan(50, replace(PRESETS["pretrain-x"], copy_paste=1.0), SIZE, 0, epoch, 3)
        without = plan(50, replace(PRESETS["pretrain-x"], copy_paste=0.0), SIZE, 0, epoch, 3)
        assert [replace(view, guest=None).rows for view in with_.views] == [view.rows for view in without.views]
        assert all(torch.equal(a.matrix, b.matrix) for a, b in zip(with_.views, without.views, strict=True))
        assert torch.equal(with_.color, without.color)
        assert all(view.guest is not None for view in with_.views)
        assert all(view.guest is None for view in without.views)


def test_the_probability_and_its_end_with_the_mosaic():
    config = replace(OFF, copy_paste=0.3)
    drawn = [plan(9, config, SIZE, 0, 0, row).views[0].guest for row in range(400)]
    assert 0.2 < np.mean([guest is not None for guest in drawn]) < 0.4
    assert all(plan(9, ALWAYS, SIZE, 0, 0, row, mosaic_on=False).views[0].guest is None for row in range(20))


@pytest.mark.parametrize("mirror", [False, True])
def test_a_cutting_shows_the_objects_where_they_are_in_their_picture(mirror):
    data = painted(1)
    objects = data.instances(0)
    found = [
        cutting
        for pick in range(8)
        if (cutting := cut_out(Guest(0, (0.3, 0.6), mirror, pick), data[0], objects, (SIZE, SIZE), 2 * SIZE, SIZE)) is not None
    ]
    assert len({len(cutting.objects) for cutting in found}) > 1
    for cutting in found:
        assert (cutting.left, cutting.top) == (SIZE // 2, SIZE // 2)  # no room to move within the window
        assert (cutting.pixels[cutting.cover][:, 2] == 200).all()
        area = cutting.objects.shapes["polygons"].area().sum().item()
        assert cutting.cover.sum() == area > 0


def test_presets_state_it():
    assert PRESETS["default"].copy_paste == PRESETS["off"].copy_paste == 0
    stated = {name: preset.copy_paste for name, preset in PRESETS.items() if preset.copy_paste}
    assert stated == {
        "pretrain-n": 0.1, "pretrain-s": 0.15, "pretrain-m": 0.4, "pretrain-l": 0.5, "pretrain-x": 0.6,
        "finetune-n": 0.075, "finetune-s": 0.404, "finetune-m": 0.304, "finetune-l": 0.404, "finetune-x": 0.404,
    }  # fmt: skip


@pytest.mark.parametrize(("flip", "mirrored"), [(None, False), ((1, 0), True)])
def test_points_are_mirrored_only_where_their_sides_are_known(flip, mirrored):
    data = painted(1)
    objects = data.instances(0)
    points = torch.tensor([[[1.0, 2, 2], [30, 4, 2]]]).repeat(len(objects), 1, 1)
    objects = replace(objects, shapes={**objects.shapes, "keypoints": Keypoints(points, flip)})
    cutting = cut_out(Guest(0, (0.0, 0.0), True, 5), data.images[0], objects, (SIZE, SIZE), SIZE, SIZE)
    assert cutting is not None
    assert np.array_equal(cutting.pixels, data.images[0][:, ::-1] if mirrored else data.images[0])
    x = cutting.objects.shapes["keypoints"].data[0, :, 0].tolist()
    assert x == ([SIZE - 30, SIZE - 1] if mirrored else [1, 30])

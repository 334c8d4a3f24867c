"""Boxes go where their pixels go, for random plans."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pellucid.augment.apply import apply
from pellucid.augment.paste import layer, move
from pellucid.augment.plan import View, plan
from pellucid.augment.presets import OFF, AugmentConfig
from pellucid.data.collate import collate
from pellucid.data.dataset import TrainingSet, ValidationSet
from pellucid.geometry import Boxes
from pellucid.geometry.affine import compose, rotation, scaling, translation, warp_images
from pellucid.types import Instances

from .fakes import Memory, noise

S = 96
CONFIGS = {
    "window": AugmentConfig(scale=0, translate=0, fliplr=0, hsv_h=0, hsv_s=0, hsv_v=0),
    "default": AugmentConfig(flipud=0.5, hsv_h=0, hsv_s=0, hsv_v=0),
    "no mosaic": AugmentConfig(mosaic=0, scale=0.4, translate=0.2, hsv_h=0, hsv_s=0, hsv_v=0),
    "strong": AugmentConfig(scale=0.9, translate=0.3, degrees=180, shear=20, flipud=0.5, hsv_h=0, hsv_s=0, hsv_v=0),
}


def pack(data, keys):
    return collate([data[key] for key in keys], size=S, extras=lambda instances, size: {}, warped=True)


def painted(height, width, box):
    """One white box on grey in row 0, and thirty grey pictures to draw partners from."""
    image = np.full((height, width, 3), 114, np.uint8)
    x1, y1, x2, y2 = box
    image[y1:y2, x1:x2] = 255
    grey = [np.full((S, S - 20 * (i % 3), 3), 114, np.uint8) for i in range(30)]
    return Memory([image, *grey], [np.array([box]), *[np.zeros((0, 4))] * 30])


def measured(image, level):
    """Bounding box of all pixels brighter than a share of the step from grey to white, or None."""
    rows, columns = np.nonzero(image.max(0) > 114 + level * (255 - 114))
    return None if rows.size == 0 else np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


@example(name="strong", seed=52, short=49, wide=False, corner=(0.75, 0.0), side=(0.5, 1.0))  # only the box around it is seen
@given(
    name=st.sampled_from(sorted(CONFIGS)),
    seed=st.integers(0, 10**6),
    short=st.integers(S // 3, S),
    wide=st.booleans(),
    corner=st.tuples(st.floats(0, 0.8), st.floats(0, 0.8)),
    side=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)),
)
@settings(max_examples=150, deadline=None)
def test_boxes_equal_a_warp_of_their_pixels(name, seed, short, wide, corner, side):
    height, width = (short, S) if wide else (S, short)
    x1, y1 = int(corner[0] * width), int(corner[1] * height)
    box = [x1, y1, x1 + max(8, int(side[0] * (width - x1))), y1 + max(8, int(side[1] * (height - y1)))]
    box = [min(box[0], width - 8), min(box[1], height - 8), min(box[2], width), min(box[3], height)]
    memory = painted(height, width, box)
    data = TrainingSet(memory, memory, CONFIGS[name], S, seed)
    assume(0 not in plan(len(data), data.config, S, seed, 0, 0).views[0].rows[1:])
    batch = apply(pack(data, [(0, 0)]))
    image = batch.images[0].numpy()
    truth = batch.targets.boxes[0][batch.targets.valid[0]].numpy()
    turned = name == "strong"
    found = measured(image, 0.04 if turned else 0.4)  # the tip of a turned box fills little of its pixel
    assert len(truth) <= 1
    if len(truth) == 0:
        assert found is None or nearly_gone(image, found, box, data)
    elif turned and (truth[0].min() <= 0 or truth[0].max() >= S):  # turned and cut: the box holds the pixels, perhaps with room
        assert (found[:2] - truth[0][:2]).min() > -1.5
        assert (truth[0][2:] - found[2:]).min() > -1.5
    else:
        assert np.abs(truth[0] - found).max() <= (1.5 if turned else 1.0)


def nearly_gone(image, found, box, data):
    """Whether what is left of the box is below the limits of what is taught, to the pixel."""
    matrix = plan(len(data), data.config, S, data.seed, 0, 0).views[0].matrix[:2, :2]
    whole = abs(float(torch.linalg.det(matrix))) * (box[2] - box[0]) * (box[3] - box[1])
    width, height = found[2:] - found[:2]
    return min(width, height) <= 4 or (image.max(0) > 184).sum() - width - height <= 0.1 * whole


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_most_painted_boxes_survive(name):
    memory = painted(S, S - 20, [20, 20, 60, 60])
    kept = sum(int(pack(TrainingSet(memory, memory, CONFIGS[name], S, seed), [(0, 0)]).targets.valid.sum()) for seed in range(40))
    assert 20 <= kept <= 40


def test_a_window_of_the_mosaic_keeps_the_size_of_objects():
    memory = painted(S, S, [30, 30, 60, 60])
    packs = [pack(TrainingSet(memory, memory, CONFIGS["window"], S, seed), [(0, 0)]) for seed in range(100)]
    sides = torch.cat([(p.targets.boxes[0, :, 2:] - p.targets.boxes[0, :, :2])[p.targets.valid[0]] for p in packs])
    assert (sides == 30).all(1).sum() > 5  # whole ones; the others are cut
    assert sides.max() == 30


def test_without_augmentation_training_equals_validation():
    memory = painted(S - 31, S, [10, 10, 40, 50])
    train = apply(pack(TrainingSet(memory, memory, OFF, S, 0), [(0, 0)]))
    plain = collate([ValidationSet(memory, memory, S)[0]], size=S, extras=lambda instances, size: {}, warped=False)
    valid = apply(plain)
    assert torch.equal(train.images, valid.images)
    assert torch.equal(train.targets.boxes, valid.targets.boxes)
    assert valid.targets.boxes[0, 0].tolist() == [10, 25, 40, 65]
    assert valid.metas[0].letterbox.top == 15
    assert train.metas[0].letterbox is None
    assert valid.metas[0].id == 100


def test_a_view_cut_to_what_is_seen_equals_the_whole_canvas():
    memory = noise(40, S)
    for seed in range(20):
        view = plan(40, CONFIGS["default"], S, seed, 0, seed).views[0]
        images = [memory[row] for row in view.rows]
        whole = np.full((view.canvas, view.canvas, 3), 114, np.uint8)
        for image, (x, y) in zip(images, view.offsets([i.shape[:2] for i in images]), strict=True):
            top, left = max(y, 0), max(x, 0)
            target = whole[top : y + image.shape[0], left : x + image.shape[1]]
            target[:] = image[top - y :, left - x :][: target.shape[0], : target.shape[1]]
        expected = warp_images(torch.from_numpy(whole).permute(2, 0, 1)[None].float(), view.matrix[None].float(), S)
        cut = layer(view, images)
        got = warp_images(cut.pixels.permute(2, 0, 1)[None].float(), cut.matrix[None].float(), S)
        assert (expected - got).abs().max() < 0.6
        assert expected.std() > 10


def test_a_view_that_shrinks_is_averaged_first():
    stripes = np.zeros((S, S, 3), np.uint8)
    stripes[:, ::2] = 200
    tenth = scaling(0.1, 0.1)
    small = layer(View((0,), (0, 0), S, tenth, S), [stripes])
    assert small.pixels.shape[0] == -(-S // 5)
    shrunk = warp_images(small.pixels.permute(2, 0, 1)[None].float(), small.matrix[None].float(), S)[0, 0]
    inner = shrunk[1 : S // 10 - 1, 1 : S // 10 - 1]
    assert (inner - 100).abs().max() < 22  # a plain bilinear sample gives 0 or 200 in places
    assert shrunk[S // 10 + 2 :].min() == 114


def test_objects_hardly_seen_are_not_taught_and_others_are():
    view = View((0,), (0, 0), S, translation(0, 0), S)
    boxes = [[0, 0, 30, 30], [-25, 0, 5, 30], [-28, 0, 2, 30], [10, 10, 12, 30], [10, 10, 13, 30], [90, 90, 200, 200], [0, 0, 0, 0]]
    objects = Instances(torch.arange(7), {"boxes": Boxes(torch.tensor(boxes).float())})
    left = move(view, [objects], [(S, S)], [(S, S)])
    assert left.labels.tolist() == [0, 1, 4]
    assert left.shapes["boxes"].data[1].tolist() == [0, 0, 5, 30]
    crowds = replace(objects, ignore=torch.tensor([False, True, True, True, False, True, True]))
    kept = move(view, [crowds], [(S, S)], [(S, S)])
    assert kept.labels.tolist() == [0, 1, 2, 3, 4, 5]  # a region is ignored however little of it is seen
    assert kept.ignore.tolist() == [False, True, True, True, False, True]


def test_what_the_canvas_cuts_away_does_not_come_back_by_turning():
    view = View((0, 0, 0, 0), (S, S // 2), 2 * S, compose(translation(S / 2, S / 2), rotation(0.8), translation(-60, -30)), S)
    above = Instances(torch.zeros(1, dtype=torch.int64), {"boxes": Boxes(torch.tensor([[20.0, 0, 80, 40]]))})
    none = above[:0]
    assert view.offsets([(S, S)] * 4)[0] == (0, -S // 2)
    assert len(move(view, [above, none, none, none], [(S, S)] * 4, [(S, S)] * 4)) == 0
    below = above.warp(translation(10, 50))
    assert len(move(view, [below, none, none, none], [(S, S)] * 4, [(S, S)] * 4)) == 1


def test_objects_move_from_original_pixels():
    view = View((0,), (0, 0), S, translation(0, 0), S)
    objects = Instances(torch.zeros(1, dtype=torch.int64), {"boxes": Boxes(torch.tensor([[20.0, 20, 100, 60]]))})
    left = move(view, [objects], [(S, S * 2)], [(S // 2, S)])
    assert left.shapes["boxes"].data.tolist() == [[10, 34, 50, 54]]

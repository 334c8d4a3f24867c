"""One buffer, padded targets, lengths from the ladder."""

import torch

from pellucid.data.collate import collate, ladder, targets
from pellucid.geometry import Boxes
from pellucid.types import ImageMeta, Instances, Layer, Sample


def objects(count, ignored=()):
    boxes = torch.arange(count * 4, dtype=torch.float32).reshape(count, 4)
    flags = torch.tensor([i in ignored for i in range(count)], dtype=torch.bool)
    return Instances(torch.arange(count), {"boxes": Boxes(boxes)}, ignore=flags)


def sample(row, sides, share=1.0):
    layers = tuple(Layer(torch.full((h, w, 3), 10 * row + h, dtype=torch.uint8), torch.eye(3, dtype=torch.float64) * h) for h, w in sides)
    meta = ImageMeta(row, row, f"{row}.png", 8, 8)
    return Sample(layers, share, torch.tensor([0.0, 1.0, 1.0]), objects(row), meta)


def none(instances, size):
    return {}


def test_ladder():
    assert [ladder(n) for n in (0, 1, 4, 5, 8, 9, 16, 17, 33, 300, 1000)] == [4, 4, 4, 8, 8, 16, 16, 32, 64, 512, 1024]


def test_layers_lie_end_to_end_with_the_mixed_ones_last():
    sent = collate([sample(0, [(2, 3)]), sample(1, [(4, 5), (6, 7)], 0.25), sample(2, [(3, 3)])], size=8, extras=none, warped=True)
    assert sent.sizes == ((2, 3), (4, 5), (3, 3), (6, 7))
    assert sent.mixed == (1,)
    assert sent.share.tolist() == [[[[0.25]]]]
    parts = sent.buffer.split([3 * h * w for h, w in sent.sizes])
    assert [set(part.tolist()) for part in parts] == [{2}, {14}, {23}, {16}]
    assert sent.matrices[:, 0, 0].tolist() == [2, 4, 3, 6]
    assert sent.matrices.dtype == torch.float32
    assert len(sent) == 3


def test_targets_are_padded_and_ignored_objects_left_out():
    found = targets([objects(3, ignored=(1,)), objects(0), objects(5)], 8, none)
    assert found.valid.sum(1).tolist() == [2, 0, 5]
    assert found.boxes.shape == (3, 8, 4)
    assert found.labels[0].tolist() == [0, 2, 0, 0, 0, 0, 0, 0]
    assert found.boxes[0, 1].tolist() == [8, 9, 10, 11]
    assert found.boxes[~found.valid].abs().sum() == 0


def test_the_task_adds_rows_of_its_own():
    def points(instances, size):
        return {"points": torch.full((len(instances), 2, 3), float(size))}

    found = targets([objects(1), objects(2)], 8, points)
    assert found.extras["points"].shape == (2, 4, 2, 3)
    assert found.extras["points"][1, :, 0, 0].tolist() == [8, 8, 0, 0]

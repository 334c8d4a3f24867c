"""One buffer, padded targets, lengths from the ladder."""

import torch

from pellucid.assign.points import anchor_points
from pellucid.data.collate import collate, ladder, targets
from pellucid.geometry import Boxes, Polygons
from pellucid.geometry.rboxes import RBoxes
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


def test_ignored_objects_are_regions_of_anchors_by_class():
    """By the outline or rotated box where there is one, else by the box; in the order of the anchors; also in a batch without any."""
    points, _ = anchor_points([(8, 8), (4, 4), (2, 2)], (8, 16, 32), torch.device("cpu"))
    x, y = points.unbind(-1)
    boxes = Boxes(torch.tensor([[0.0, 0, 30, 21], [21, 10, 64, 41], [5, 5, 9, 9], [41, 41, 64, 64]]))
    crowd = Instances(torch.tensor([2, 2, 0, 5]), {"boxes": boxes}, ignore=torch.tensor([True, True, False, True]))
    calm = Instances(torch.tensor([1]), {"boxes": boxes[:1]}, ignore=torch.tensor([False]))
    found = targets([crowd, calm], 64, none, ignored=True)
    assert found.ignored.labels.tolist() == [[2, 5, 0, 0], [0, 0, 0, 0]]
    two = ((x < 30) & (y < 21)) | ((x > 21) & (y > 10) & (y < 41))
    assert torch.equal(found.ignored.cells[0, 0], two)
    assert torch.equal(found.ignored.cells[0, 1], (x > 41) & (y > 41))
    assert 0 < two.sum() < len(points)
    assert not found.ignored.cells[0, 2:].any()
    assert not found.ignored.cells[1].any()
    assert found.labels[0, 0] == 0
    assert targets([crowd, calm], 64, none).ignored is None

    triangle = Polygons.from_parts([[[(0, 0), (64, 0), (0, 64)]]])
    turned = RBoxes(torch.tensor([[32.0, 32, 40, 10, 0.785398]]))
    for shape, inside in ((triangle, x + y < 64), (turned, ((x - y).abs() < 5 * 2**0.5) & ((x + y - 64).abs() < 20 * 2**0.5))):
        part = Instances(torch.tensor([0]), {"boxes": boxes[:1], "own": shape}, ignore=torch.tensor([True]))
        cells = targets([part], 64, none, ignored=True).ignored.cells[0, 0]
        clear = (x + y != 64) | (shape is turned)
        assert torch.equal(cells[clear], inside[clear])
        assert 0 < cells.sum() < len(points)

"""Keypoints on the way from the network to the original picture."""

import pytest
import torch

from pellucid.decode import decode, restore
from pellucid.decode.run import PATHS
from pellucid.geometry import Boxes, Letterbox
from pellucid.geometry.keypoints import Keypoints
from pellucid.models.build import build
from pellucid.tasks import TASKS
from pellucid.types import Instances


def found(points, boxes=((10.0, 10, 90, 90),)) -> Instances:
    shapes = {"boxes": Boxes(torch.tensor(boxes)), "keypoints": Keypoints(torch.tensor(points), predicted=True)}
    return Instances(torch.zeros(len(boxes), dtype=torch.int64), shapes, torch.ones(len(boxes)))


@pytest.mark.parametrize("told", [{}, {"points": 1}, {"points": 4, "dims": 2}, {"points": 20, "rle": 0.0}])
@pytest.mark.parametrize("fused", [False, True])
def test_more_images_than_the_flow_has_couplings(told, fused):
    """What the network shares with its losses alone is no part of a picture; a fused model has none of it."""
    torch.manual_seed(0)
    task = TASKS["pose"](**told)
    model = build("n", 2, task.stems, task.shared, task.training_only).eval()
    model = model.fuse("both") if fused else model
    with torch.no_grad():
        output = model(torch.rand(8, 3, 64, 64))
    assert bool(output.shared) == (not fused and told.get("rle") != 0)
    for path in PATHS:
        objects = decode(output, task, path, conf=0, max_det=5)
        assert [len(part) for part in objects] == [5] * 8
        points = objects[7].shapes["keypoints"]
        assert points.data.shape == (5, told.get("points", 17), 3)
        assert ((points.data[..., 2] > 0) & (points.data[..., 2] <= 1)).all()
        assert (points.data[..., 2] == 1).all() == (told.get("dims") == 2)


def test_points_come_back_by_the_inverse_of_the_letterbox():
    box = Letterbox.fit(300, 500, 128)
    original = torch.rand(1, 6, 2) * torch.tensor([500.0, 300])
    canvas = Boxes(torch.tensor([[20.0, 30, 400, 280]])).warp(box.matrix())
    points = Keypoints(torch.cat((original, torch.full((1, 6, 1), 0.4)), -1), predicted=True).warp(box.matrix())
    back = restore(Instances(torch.zeros(1).long(), {"boxes": canvas, "keypoints": points}, torch.ones(1)), box)
    torch.testing.assert_close(back.shapes["keypoints"].data[..., :2], original, atol=1e-3, rtol=0)
    assert (back.shapes["keypoints"].data[..., 2] == 0.4).all()


@pytest.mark.parametrize("points", [[[[50.0, 50, 0.9]]], [[[-30.0, 50, 0.9], [-40, 60, 0.8]]], [[[30.0, 50, 0.9], [60, 50, 0.8]]]])
def test_an_object_is_kept_by_its_box_not_by_its_points(points):
    """One point, points beside the picture, points on a line: none of them encloses an area."""
    back = restore(found(points), Letterbox.fit(100, 100, 100))
    assert len(back) == 1
    assert (back.shapes["keypoints"].data[..., :2] >= 0).all()


def test_an_object_in_the_padding_goes_with_its_points():
    box = Letterbox.fit(50, 100, 100)  # rows 0 to 24 are padding
    both = found([[[50.0, 50, 0.9]], [[50.0, 10, 0.9]]], ((10.0, 30, 90, 70), (10.0, 2, 90, 20)))
    back = restore(both, box)
    assert len(back) == 1
    assert back.shapes["keypoints"].data[0, 0, :2].tolist() == [50, 25]

"""Objects and predictions of any task to assign."""

from dataclasses import replace

import torch

from pellucid.assign.points import anchor_points
from pellucid.geometry.masks import pack_bits
from pellucid.types import Dense, Targets

C = 3


def scene(task, seed=0, objects=8, reach=60.0, batch=2, side=128):
    """The arguments of a claim: objects of all sizes, the last quarter of them not there; predictions near the closest object."""
    sizes = [(side // stride, side // stride) for stride in (8, 16, 32)]
    points, strides = anchor_points(sizes, (8, 16, 32), torch.device("cpu"))
    g = torch.Generator().manual_seed(seed)
    centre, half = torch.rand(batch, objects, 2, generator=g) * side, 2 + torch.rand(batch, objects, 2, generator=g) * reach / 2
    boxes = torch.cat((centre - half, centre + half), -1)
    theta = torch.rand(batch, objects, 1, generator=g) * 3 - 0.7
    seen = torch.randint(3, (batch, objects, 17, 1), generator=g).float()
    seen[:, 1] = 0
    places = boxes[:, :, None, :2] + torch.rand(batch, objects, 17, 2, generator=g) * 2 * half[:, :, None]
    cells = torch.arange(side // 4) * 4 + 2.0
    across, down = ((cells - centre[..., axis, None]).abs() < half[..., axis, None] for axis in (0, 1))
    extras = {
        "rboxes": torch.cat((centre, 2 * half.sort(-1, descending=True).values, theta), -1),
        "keypoints": torch.cat((places, seen), -1),
        "masks": pack_bits(down[..., :, None] & across[..., None, :]),
    }
    nearest = torch.stack([torch.cdist(points, near).argmin(-1) for near in centre])  # (B, A)

    def predicted(true, noise):
        found = true[torch.arange(batch)[:, None], nearest]
        return found + torch.randn(found.shape, generator=g) * noise

    truth = {"boxes": boxes, **extras}
    shapes = {name: predicted(truth[name], 1.0 if name == "rboxes" else 4.0) for name in task.kinds if name != "masks"}
    outputs = {
        "cls": torch.randn(batch, len(points), C, generator=g) * 2,
        "coefficients": torch.randn(batch, len(points), 32, generator=g) / 4,
    }
    shared = {"proto": torch.randn(batch, 32, side // 4, side // 4, generator=g)}
    valid = (torch.arange(objects) < objects - objects // 4).repeat(batch, 1)
    targets = Targets(torch.randint(C, (batch, objects), generator=g), valid, boxes, extras)
    return Dense(outputs, points, strides), shapes, shared, targets, replace(task.overlap, far=False)

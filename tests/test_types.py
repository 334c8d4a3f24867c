"""The values that flow move as one."""

import torch

from pellucid.geometry import Boxes
from pellucid.types import Batch, ImageMeta, Instances, Regions, Targets


def test_a_batch_moves_with_everything_in_it():
    targets = Targets(
        torch.zeros(1, 4, dtype=torch.int64),
        torch.ones(1, 4, dtype=torch.bool),
        torch.ones(1, 4, 4),
        {"extra": torch.ones(1, 4, 2)},
        Regions(torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4, 21, dtype=torch.bool)),
    )
    moved = Batch(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), targets, (ImageMeta(0, 0, "a", 8, 8),)).to("meta")
    tensors = (
        moved.images,
        moved.targets.labels,
        moved.targets.valid,
        moved.targets.boxes,
        moved.targets.extras["extra"],
        moved.targets.ignored.cells,
    )
    assert all(t.device.type == "meta" for t in tensors)
    assert moved.metas[0].path == "a"


def test_indexing_takes_every_field():
    part = Instances(
        torch.tensor([1, 2, 3]), {"boxes": Boxes(torch.eye(3, 4))}, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([True, False, True])
    )
    chosen = part[torch.tensor([2, 0])]
    assert chosen.labels.tolist() == [3, 1]
    assert torch.equal(chosen.shapes["boxes"].data, torch.eye(3, 4)[[2, 0]])
    assert torch.equal(chosen.scores, torch.tensor([0.3, 0.1]))
    assert chosen.ignore.tolist() == [True, True]
    assert len(Instances.cat([chosen, part])) == 5

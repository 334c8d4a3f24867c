"""Keypoints in training pictures: each lies on its own pixels, sides change places in a mirror, what leaves the picture is absent."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from pellucid.augment.apply import apply
from pellucid.augment.plan import plan
from pellucid.augment.presets import AugmentConfig
from pellucid.data.collate import collate
from pellucid.data.dataset import TrainingSet
from pellucid.geometry.keypoints import Keypoints
from pellucid.tasks import TASKS
from tests.augment.fakes import Memory

SIZE, DOT = 96, 9
COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)  # left eye, right eye, nose
CONFIG = AugmentConfig(scale=0.3, degrees=30, fliplr=0.5, flipud=0.5, hsv_h=0, hsv_s=0, hsv_v=0)


@dataclass
class Dotted(Memory):
    """Pictures of objects with a dot of its own colour at each of three points; the nose of odd rows is not labelled."""

    points: list[torch.Tensor] = field(default_factory=list)

    def instances(self, row):
        plain = super().instances(row)
        plain.shapes["keypoints"] = Keypoints(self.points[row], (1, 0, 2))
        return plain


def dotted(count: int = 6) -> Dotted:
    draw = np.random.default_rng(0)
    images, boxes, points = [], [], []
    for row in range(count):
        image = np.full((SIZE, SIZE, 3), 114, np.uint8)
        x, y = draw.integers(DOT, 30, 2)
        own = np.array([[x, y], [x + 45, y + 5], [x + 20, y + 40]]) + DOT / 2
        for (left, top), colour in zip((own - DOT / 2).astype(int), COLOURS, strict=True):
            image[top : top + DOT, left : left + DOT] = colour
        seen = np.array([[2], [1], [0 if row % 2 else 2]])
        images.append(image)
        boxes.append(np.array([[x, y, x + 54, y + 49]], np.float32))
        points.append(torch.from_numpy(np.concatenate((own, seen), 1) * (seen > 0)).float()[None])
    return Dotted(images, boxes, points=points)


@pytest.mark.parametrize("mosaic", [0.0, 1.0])
def test_every_point_lies_on_its_own_dot(mosaic):
    data, task = dotted(), TASKS["pose"](points=3)
    config = AugmentConfig(**{**vars(CONFIG), "mosaic": mosaic})
    checked = {True: 0, False: 0}
    for seed in range(6):
        samples = [TrainingSet(data, data, config, SIZE, seed)[0, row] for row in range(len(data))]
        batch = apply(collate(samples, SIZE, task.targets, warped=True))
        for row in range(len(data)):
            matrix = plan(len(data), config, SIZE, seed, 0, row, True).views[0].matrix
            mirrored = bool(torch.det(matrix[:2, :2]) < 0)
            for keypoints in batch.targets.extras["keypoints"][row][batch.targets.valid[row]]:
                for place, (x, y, seen) in enumerate(keypoints.tolist()):
                    if not 2 < x < SIZE - 2 or not 2 < y < SIZE - 2 or not seen:
                        continue
                    colour = COLOURS[[1, 0, 2][place] if mirrored else place]
                    assert np.abs(batch.images[row, :, int(y), int(x)].numpy().astype(int) - colour).max() < 40
                    checked[mirrored] += 1
    assert min(checked.values()) > 30


def test_points_outside_the_picture_are_absent():
    data, task = dotted(), TASKS["pose"](points=3)
    samples = [TrainingSet(data, data, CONFIG, SIZE, seed)[0, row] for row in range(len(data)) for seed in range(4)]
    points = torch.cat([task.targets(sample.instances, SIZE)["keypoints"] for sample in samples])
    seen = points[..., 2] > 0
    assert 20 < seen.sum() < seen.numel() - 20
    assert ((points[seen][:, :2] >= 0) & (points[seen][:, :2] <= SIZE)).all()
    assert (points[~seen] == 0).all()

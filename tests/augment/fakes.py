"""A data set in memory: pictures already resized, boxes in their pixels."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from pellucid.geometry import Boxes
from pellucid.types import Instances


@dataclass
class Memory:
    """Stands for both an Index and an ImageStore."""

    images: list[np.ndarray]
    boxes: list[np.ndarray]  # (n, 4) each
    ignore: list[int] = field(default_factory=list)  # rows whose objects are all ignored

    def __post_init__(self):
        self.sizes = np.array([image.shape[:2] for image in self.images], np.int32)
        self.ids = np.arange(len(self.images), dtype=np.int64) + 100

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        return self.images[row]

    def path(self, row):
        return Path(f"{row}.png")

    def instances(self, row):
        boxes = torch.from_numpy(self.boxes[row]).float().reshape(-1, 4)
        flags = torch.full((len(boxes),), row in self.ignore)
        return Instances(torch.full((len(boxes),), row), {"boxes": Boxes(boxes)}, ignore=flags)


def noise(count, size, seed=0, boxes=3):
    """Pictures of noise with the longest side `size`, with boxes."""
    draw = np.random.default_rng(seed)
    images, found = [], []
    for row in range(count):
        short = int(draw.integers(size // 2, size))
        height, width = (short, size) if row % 2 else (size, short)
        images.append(draw.integers(0, 256, (height, width, 3), np.uint8))
        low = draw.uniform(0, 0.6, (boxes, 2)) * (width, height)
        found.append(np.concatenate((low, low + size / 5), 1).astype(np.float32))
    return Memory(images, found)

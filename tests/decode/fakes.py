"""Chosen outputs in place of a network's, and a network that finds the red rectangle of a picture."""

import torch
from torch import nn

from pellucid.types import Dense, Output

STRIDE = 8.0


def make_dense(boxes, logits):
    """A branch whose anchor (b, a) stands for box `boxes[b, a]` with the class logits `logits[b, a]`."""
    count = boxes.shape[1]
    points = torch.arange(count)[:, None] * torch.tensor([3.0, 1.0]) % 64
    distances = torch.cat((points - boxes[..., :2], boxes[..., 2:] - points), -1) / STRIDE
    return Dense({"cls": logits, "box": distances}, points, torch.full((count,), STRIDE))


def make_output(boxes, logits, size=64):
    """Both branches alike."""
    dense = make_dense(boxes, logits)
    return Output(dense, dense, {}, (size, size))


def random_boxes(generator, *shape, side=64.0):
    low = torch.rand(*shape, 2, generator=generator) * side * 0.7
    return torch.cat((low, low + 2 + torch.rand(*shape, 2, generator=generator) * side * 0.3), -1)


class RedFinder(nn.Module):
    """Gives the bounds of the red pixels of each canvas as class 1 with probability `score`, and nothing else above 1e-4."""

    def __init__(self, classes=2, anchors=40, score=0.9):
        super().__init__()
        self.classes, self.anchors, self.score = classes, anchors, score
        self.batches = []

    def forward(self, images):
        self.batches.append(len(images))
        boxes = torch.zeros(len(images), self.anchors, 4) + torch.tensor([0.0, 0.0, 4.0, 4.0])
        logits = torch.full((len(images), self.anchors, self.classes), -10.0)
        for row, image in enumerate(images.int()):
            red = (image[0] > 180) & (image[1] < 90) & (image[2] < 90)  # (S, S)
            if red.any():
                ys, xs = red.any(1).nonzero(), red.any(0).nonzero()
                boxes[row, 7] = torch.stack((xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)).float()
                logits[row, 7, 1] = torch.tensor(self.score).logit()
        return make_output(boxes, logits, images.shape[-1])

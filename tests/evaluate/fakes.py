"""Small data sets and predictions with chosen properties."""

from pathlib import Path

import torch

from pellucid.data.index import IndexBuilder
from pellucid.geometry import Boxes
from pellucid.types import ImageMeta, Instances, Prediction

NAMES = ("cup", "plate", "jug")
CATEGORY_IDS = (7, 1, 90)  # sparse, and not in order


def make_index(images, names=NAMES, category_ids=CATEGORY_IDS, ids=None, size=(480, 640)):
    """`images`: for each a list of (label, xyxy[, crowd])."""
    builder = IndexBuilder(Path("/photos"))
    for row, objects in enumerate(images):
        builder.image(f"/photos/shelf {row}.jpg", size, None if ids is None else ids[row])
        for label, box, *crowd in objects:
            builder.object(label, box, bool(crowd and crowd[0]))
    return builder.build(names, category_ids)


def instances(labels=(), boxes=(), scores=()):
    boxes = torch.as_tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return Instances(torch.as_tensor(labels, dtype=torch.int64), {"boxes": Boxes(boxes)}, torch.as_tensor(scores, dtype=torch.float32))


def prediction(index, row, *args):
    height, width = index.sizes[row].tolist()
    return Prediction(ImageMeta(row, int(index.ids[row]), str(index.path(row)), height, width), instances(*args))


def random_case(seed, images=12, most=8, found=150):
    """An index with crowds and empty images, and predictions that are near, far, tied and too many."""
    generator = torch.Generator().manual_seed(seed)
    scenes, predictions = [], []
    for row in range(images):
        count = 0 if row % 5 == 3 else int(torch.randint(1, most, (1,), generator=generator))
        corner = torch.rand(count, 2, generator=generator) * 300
        boxes = torch.cat((corner, corner + 4 + 170 * torch.rand(count, 2, generator=generator) ** 2), 1)
        labels = torch.randint(0, 3, (count,), generator=generator)
        crowd = torch.rand(count, generator=generator) < 0.15
        scenes.append(list(zip(labels.tolist(), boxes.tolist(), crowd.tolist(), strict=True)))
        pick = torch.randint(0, max(count, 1), (found,), generator=generator)
        near = boxes[pick] if count else torch.tensor([50.0, 50, 90, 90]).repeat(found, 1)
        near = near + torch.randn(found, 4, generator=generator) * (3 + 20 * torch.rand(found, 1, generator=generator))
        near = torch.cat((near[:, :2].clamp(0, 400), torch.maximum(near[:, 2:], near[:, :2].clamp(0, 400) + 1)), 1)
        kinds = labels[pick] if count else torch.randint(0, 3, (found,), generator=generator)
        scores = (torch.rand(found, generator=generator) * 60).round() / 60  # many ties
        order = scores.argsort(descending=True, stable=True)
        predictions.append((kinds[order], near[order], scores[order]))
    index = make_index(scenes, ids=[1000 - 7 * row for row in range(images)])
    return index, [prediction(index, row, *parts) for row, parts in enumerate(predictions)]

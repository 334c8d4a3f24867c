"""The pictures on which a model errs most and least, with truth and findings side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ..data.images import read_image
from ..data.index import Index
from ..draw import Color, draw, resized
from ..evaluate.confusion import ignored_of, match, overlaps
from ..results.preview import telling_shapes
from ..train.folder import whole_file
from ..types import Instances

SHOWN = 6  # pictures of each kind
SIDE = 420  # pixels of the longest side
IOU = 0.5
RIGHT, WRONG, MISSED, IGNORED = (35, 165, 90), (235, 120, 20), (225, 45, 70), (130, 135, 145)


@dataclass(frozen=True)
class Judged:
    """What was found on one picture, object by object."""

    row: int
    found: Instances  # at or above the threshold
    truth: Instances
    taken: torch.Tensor  # (p,) the object that each finding takes, -1 none, -2 on an ignored region

    @property
    def hits(self) -> int:
        return int((self.taken >= 0).sum())

    @property
    def false(self) -> int:
        return int((self.taken == -1).sum())

    @property
    def missed(self) -> int:
        return int((~ignored_of(self.truth)).sum()) - self.hits

    @property
    def f1(self) -> float:
        """2 hits / (findings + objects); 1 where nothing is to be found and nothing was."""
        return 2 * self.hits / max(2 * self.hits + self.false + self.missed, 1) if self.hits + self.false + self.missed else 1.0


def judge(row: int, found: Instances, truth: Instances, threshold: float) -> Judged:
    """Match the findings at or above `threshold` to the objects of their class, best score first, at IoU `IOU`."""
    assert found.scores is not None
    found = found[found.scores >= threshold].to("cpu")
    assert found.scores is not None
    ignored = ignored_of(truth)
    iou = overlaps(found, truth, ignored)
    same = found.labels[:, None] == truth.labels[None]
    return Judged(row, found, truth, match(found.scores, torch.where(same, iou, torch.zeros(())), ignored, IOU))


def write_examples(folder: Path, found: Mapping[int, Instances], index: Index, threshold: float) -> dict[str, Any]:
    """Write the worst and the best pictures to `folder`/examples; what to say of each, by "worst" and "best"."""
    judged = [judge(row, found[row], index.instances(row), threshold) for row in sorted(found)]
    order = sorted(judged, key=lambda one: (one.f1, -(one.missed + one.false), one.row))
    half = -(-len(order) // 2)
    best = sorted(order[half:], key=lambda one: (-one.f1, -one.hits, one.row))
    chosen = {"worst": [one for one in order[:half] if one.f1 < 1][:SHOWN], "best": best[:SHOWN]}
    (folder / "examples").mkdir(exist_ok=True)
    told = {}
    for kind, ones in chosen.items():
        told[kind] = [_write_one(folder, f"{kind}-{number}", one, index) for number, one in enumerate(ones, 1)]
    return {"threshold": threshold, "iou": IOU, **told}


def _write_one(folder: Path, name: str, one: Judged, index: Index) -> dict[str, Any]:
    path = index.path(one.row)
    image = read_image(path)
    hit = set(one.taken[one.taken >= 0].tolist())
    ignored = ignored_of(one.truth).tolist()
    of_truth = [IGNORED if ignored[i] else RIGHT if i in hit else MISSED for i in range(len(one.truth))]
    of_found = [RIGHT if place >= 0 else IGNORED if place == -2 else WRONG for place in one.taken.tolist()]
    for kind, objects, colors in (("truth", one.truth, of_truth), ("found", one.found, of_found)):
        with whole_file(folder / "examples" / f"{name}-{kind}.jpg") as part:
            small_picture(image, objects, index, colors).save(part, "JPEG", quality=82)
    figures = {"hits": one.hits, "missed": one.missed, "false": one.false, "f1": round(one.f1, 4)}
    return {"picture": path.name, "files": [f"examples/{name}-{kind}.jpg" for kind in ("truth", "found")], **figures}


def small_picture(image: np.ndarray, objects: Instances, index: Index, colors: list[Color]) -> Image.Image:
    """`image` with its longest side `SIDE`, and the objects on it in the given colours."""
    gain = SIDE / max(image.shape[:2])
    size = tuple(max(1, round(side * gain)) for side in image.shape[1::-1])
    small = Image.fromarray(np.ascontiguousarray(image)).resize(size, Image.Resampling.BILINEAR)
    objects = resized(telling_shapes(replace(objects, ignore=None)), gain)
    return Image.fromarray(draw(np.asarray(small), objects, index.names, len(index.names) > 1, colors))

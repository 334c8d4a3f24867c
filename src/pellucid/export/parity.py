"""How far an exported file is from torch on real pictures: the largest difference of each kind, over objects that both found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.images import SUFFIXES, letterbox, read_image
from ..data.samples import NAMES, sample_path
from ..decode import best
from ..geometry import Boxes
from ..geometry.keypoints import Keypoints
from ..geometry.masks import Masks
from ..geometry.rboxes import RBoxes
from ..predict.sources import Source, open_sources
from ..tasks import Task
from ..types import Instances

COMPARED, SURE, ENOUGH = 0.05, 0.25, 5  # score of what is compared; of what a user would be shown; objects that make a comparison
BEST = 20  # rows of a picture that are compared where next to nothing is found
SAMPLED = 6  # pictures of each sample
SMALLEST = 256  # pixels that a mask counts as at least: of a smaller one the border is most
UNITS = {"boxes": "px", "rboxes": "px", "keypoints": "px", "masks": "of the pixels", "score": ""}
TOLERANCE = {  # largest differences: pixels of the canvas; share of a mask's pixels; scores
    False: {"boxes": 0.1, "rboxes": 0.1, "keypoints": 0.1, "masks": 0.02, "score": 0.001},
    True: {"boxes": 2.0, "rboxes": 2.0, "keypoints": 2.0, "masks": 0.1, "score": 0.03},
}
CLASSES = 0.05  # share of objects whose class may differ, where two classes score alike


@dataclass
class Gaps:
    """The largest differences, and what they were measured on."""

    tolerance: Mapping[str, float]
    side: int  # of the canvas, to which objects are cut as a user's are cut to the picture
    largest: dict[str, float] = field(default_factory=lambda: {"score": 0.0})
    pictures: int = 0
    compared: int = 0
    sure: int = 0  # of these at or above SURE
    other_class: int = 0

    @property
    def faults(self) -> list[str]:
        """What is beyond tolerance, in words; empty where the file is as good as torch."""
        beyond = [
            f"{kind} {value:.4g} {UNITS[kind]}".strip()
            for kind, value in self.largest.items()
            if not value <= self.tolerance[kind]  # nan too
        ]
        if self.other_class > CLASSES * self.compared:
            beyond.append(f"another class for {self.other_class} of {self.compared} objects")
        return beyond or ([] if self.compared else ["no object was compared"])

    @property
    def warnings(self) -> list[str]:
        if self.sure >= ENOUGH:
            return []
        return [
            f"only {self.sure} of the {self.compared} objects compared with torch have a score of {SURE} or more, "
            "so the comparison says little; give source= with pictures of your own objects"
        ]

    def lines(self) -> list[str]:
        """What a user reads."""
        head = (
            f"compared with torch: {self.compared} objects, {self.sure} of them with a score of {SURE} or more, on {self.pictures} pictures"
        )
        rows = [
            f"  {kind:<10} differ by at most {value:.2g} {UNITS[kind]}".rstrip() + f" (allowed {self.tolerance[kind]:g})"
            for kind, value in self.largest.items()
        ]
        return [head, *rows]

    def to_dict(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("pictures", "compared", "sure", "other_class")}
        return {**counts, "largest": self.largest, "tolerance": {kind: self.tolerance[kind] for kind in self.largest}}


def compare(
    torch_net: nn.Module, file_net: nn.Module, task: Task, path: str, canvases: Tensor, half: bool, batch: int = 1, conf: float = COMPARED
) -> Gaps:
    """The gaps between two networks on canvases (N, 3, S, S) uint8, looked at in steps of `batch`.

    Each object of one is held against the nearest of the other, both ways. One that the other may have ranked behind its last row, or
    that scores next to nothing, may be missing. Where fewer than ENOUGH objects reach the score `conf`, the BEST rows of each picture are
    compared whatever their scores.
    """
    gaps = Gaps(TOLERANCE[half], canvases.shape[-1], pictures=len(canvases))
    pairs: list[tuple[Instances, Instances]] = []
    with torch.no_grad():
        for images in canvases.split(batch):
            pairs += zip(*(_seen(net, images, task, path) for net in (torch_net, file_net)), strict=True)
    few = sum(int((ours.scores >= conf).sum()) for ours, _ in pairs if ours.scores is not None) < ENOUGH
    for ours, theirs in pairs:
        gaps.sure += int((_scores(ours) >= SURE).sum())
        gaps.compared += _hold(gaps, ours, theirs, None if few else conf)
        _hold(gaps, theirs, ours, None if few else conf)
    return gaps


def _seen(net: nn.Module, images: Tensor, task: Task, path: str) -> list[Instances]:
    """The best rows of each picture."""
    return best(net(images), task, path)


def sample_canvases(size: int, source: str = "") -> Tensor:
    """Pictures of `source`, else some of each sample that ships, letterboxed: (N, 3, size, size) uint8."""
    images = [_pixels_of(item) for item in islice(open_sources(source), 16)] if source else list(_samples())
    return torch.from_numpy(np.stack([letterbox(image, size)[0] for image in images])).permute(0, 3, 1, 2).contiguous()


def _pixels_of(source: Source) -> np.ndarray:
    return read_image(source.image() if callable(source.image) else source.image)


def _samples() -> Iterator[np.ndarray]:
    seen: set[bytes] = set()
    for name in NAMES:
        folder = sample_path(name).parent
        paths = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and "val" in path.relative_to(folder).parts)
        contents = {path.read_bytes(): None for path in paths[:SAMPLED]}  # two samples share their pictures
        yield from (read_image(content) for content in contents if content not in seen)
        seen.update(contents)


def _hold(gaps: Gaps, ours: Instances, theirs: Instances, conf: float | None) -> int:
    """Take the objects of `ours` into the gaps; how many were compared."""
    scores, others = _scores(ours), _scores(theirs)
    chosen = torch.arange(min(BEST, len(ours))) if conf is None else (scores >= conf).nonzero().squeeze(1)
    if not len(others):
        gaps.largest["score"] = max([gaps.largest["score"], *scores[chosen].tolist()])
        return len(chosen)
    apart = (ours.shapes["boxes"].bounds()[chosen, None] - theirs.shapes["boxes"].bounds()[None]).abs().amax(-1) / gaps.tolerance["boxes"]
    apart = apart + (scores[chosen, None] - others[None]).abs() / gaps.tolerance["score"]
    apart = apart + (ours.labels[chosen, None] != theirs.labels[None])  # the same class first
    nearest = apart.argmin(1)
    missing = apart.gather(1, nearest[:, None]).squeeze(1) > 2
    floor = float(others.min()) if len(theirs) >= len(ours) else 0.0
    behind = missing & (scores[chosen] <= floor + gaps.tolerance["score"])
    chosen, nearest = chosen[~behind], nearest[~behind]
    gaps.other_class += int((ours.labels[chosen] != theirs.labels[nearest]).sum())
    _largest(gaps, "score", (scores[chosen] - others[nearest]).abs())
    for kind, shape in ours.shapes.items():
        cut = (part.clip(gaps.side, gaps.side) for part in (shape[chosen], theirs.shapes[kind][nearest]))
        _largest(gaps, kind, GAPS[type(shape)](*cut))
    return len(chosen)


def _largest(gaps: Gaps, kind: str, values: Tensor) -> None:
    found = float(values.max()) if len(values) else 0.0
    before = gaps.largest.get(kind, 0.0)
    gaps.largest[kind] = before if found <= before or math.isnan(before) else found  # nan stays


def _scores(objects: Instances) -> Tensor:
    assert objects.scores is not None
    return objects.scores


def _box_gap(ours: Any, theirs: Any) -> Tensor:
    return (ours.data - theirs.data).abs().amax(-1)


def _rbox_gap(ours: Any, theirs: Any) -> Tensor:
    """Of the corners, whichever of them is named the first."""
    a, b = ours.corners(), theirs.corners()
    return torch.stack([(a - b.roll(turn, 1)).abs().amax((1, 2)) for turn in range(4)]).amin(0)


def _point_gap(ours: Any, theirs: Any) -> Tensor:
    return (ours.data[..., :2] - theirs.data[..., :2]).abs().amax((1, 2))


def _mask_gap(ours: Any, theirs: Any) -> Tensor:
    """Pixels that one of both masks holds alone, as a share of those of either, SMALLEST at least."""
    return torch.tensor([_unlike(a, b) for a, b in zip(_pixels(ours), _pixels(theirs), strict=True)])


def _pixels(masks: Masks) -> Iterator[np.ndarray]:
    reach = int(masks.boxes.max().ceil()) + 1 if len(masks) else 1
    return (masks[i : i + 1].dense(reach, reach)[0].numpy() for i in range(len(masks)))


def _unlike(a: np.ndarray, b: np.ndarray) -> float:
    height, width = (max(sides) for sides in zip(a.shape, b.shape, strict=True))
    a, b = (np.pad(mask, ((0, height - mask.shape[0]), (0, width - mask.shape[1]))) for mask in (a, b))
    return float((a ^ b).sum() / max((a | b).sum(), SMALLEST))


GAPS: Mapping[type, Callable[[Any, Any], Tensor]] = {Boxes: _box_gap, RBoxes: _rbox_gap, Keypoints: _point_gap, Masks: _mask_gap}

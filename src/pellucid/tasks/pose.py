"""Pose: keypoints of any number beside the box, compared by OKS, taught by OKS and by a learned density (arXiv 2606.03748, 3.4.2)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import DataError, UsageError
from ..geometry import Boxes, Shape
from ..geometry.keypoints import Keypoints, KeypointSpec, is_person, oks
from ..losses.boxes import ciou_loss
from ..losses.keypoints import LEAST_SIGMA, by_labelled_point, oks_loss, rle_loss, visibility_loss
from ..models.flow import FLOW_OUTPUTS, RealNVP
from ..models.head import Stem
from ..numerics.constants import constant
from ..numerics.islands import full
from ..types import Instances
from .base import Overlap, Task, Term, by_pair
from .detect import BOX_STEM, L1_LOSSES, SMALLEST_WINDOW, box_shapes, box_similarity, box_window

AREA_SHARE = 0.53  # of the box: the object's own area, as the assigner's OKS takes it
RANGE = (2.0, 12.0)  # sqrt(w h) in strides that a level answers for
PERSON_WEIGHTS = (*(1.0,) * 7, 1.2, 1.2, 1.5, 1.5, 1.0, 1.0, 1.2, 1.2, 1.5, 1.5)  # elbows and knees, wrists and ankles: hard to place


@dataclass(frozen=True)
class PoseSettings:
    """What the pose task can be told: what the data say about their points, gains, and named options."""

    points: int = 17  # K
    dims: int = 3  # 2: no visibility, every point counts
    sigmas: Sequence[float] | None = None  # none given: COCO's for a person, else 1 / K
    flip: Sequence[int] | None = None
    point_names: Sequence[str] | None = None
    skeleton: Sequence[Sequence[int]] | None = None
    box: float = 7.5
    l1: float = 1.5
    l1_units: str = "image"
    pose: float = 12.0  # 0: learn from the density alone
    kobj: float = 1.0
    rle: float = 1.0  # 0: learn from OKS alone; there is no flow then
    rle_form: str = "double"  # "single": log sigma and log phi once (arXiv 2107.11291, Eq. 8)
    teach_far: bool = False  # objects so far from every prediction that t is 0 still teach their points
    rle_floor: str = "loss"  # "sigma": sigma has a floor in place of the loss, whose gradients then never die

    def __post_init__(self) -> None:
        allowed = {"l1_units": tuple(L1_LOSSES), "rle_form": ("double", "single"), "rle_floor": ("loss", "sigma")}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise UsageError(f"{name}: expected {' or '.join(values)}, got {getattr(self, name)!r}; choose one of them")

    @property
    def spec(self) -> KeypointSpec:
        return KeypointSpec.make(self.points, self.dims, self.point_names, self.flip, self.sigmas, self.skeleton or ())


def pose(**told: Any) -> Task:
    """The pose task; the arguments are the fields of `PoseSettings`."""
    settings = PoseSettings(**told)
    spec = settings.spec
    taught = settings.rle > 0
    outputs = {"points": spec.points * spec.dims, **({"sigma": 2 * spec.points} if taught else {})}
    return Task(
        name="pose",
        needs=("boxes", "keypoints"),
        stems=(BOX_STEM, Stem(outputs, floor=spec.points * (spec.dims + 2), training_only=("sigma",))),
        shared={"flow": make_flow} if taught else {},
        kinds={"boxes": Boxes, "keypoints": Keypoints},
        targets=partial(keypoint_targets, points=spec.points),
        shapes=partial(keypoint_shapes, dims=spec.dims),
        overlap=Overlap(
            partial(keypoint_similarity, sigmas=spec.sigmas),
            level_window,
            cost=4 * spec.points,
            far=settings.teach_far,
            form="keypoints",
            numbers=(SMALLEST_WINDOW, *RANGE, AREA_SHARE, *spec.sigmas),
        ),
        terms=tuple(term for term in pose_terms(settings, spec) if term.gain),
        finish=partial(finish_keypoints, skeleton=spec.skeleton, dims=spec.dims),
        metrics=("pose", "box"),
        training_only=FLOW_OUTPUTS if taught else (),
        row=("boxes", "keypoints"),
        facts={"kpt_shape": [spec.points, 3], "keypoints": spec.to_dict()},
    )


pose.__signature__ = inspect.signature(PoseSettings)  # type: ignore[attr-defined]


def pose_terms(settings: PoseSettings, spec: KeypointSpec) -> tuple[Term, ...]:
    """All terms, those of gain 0 among them; the visibility loss exists where there is a visibility output."""
    joints = PERSON_WEIGHTS if is_person(spec.points, spec.dims, settings.point_names) else (1.0,) * spec.points
    bounded = settings.rle_floor == "sigma"
    likelihood = partial(rle_loss, joints=joints, form=settings.rle_form, least_sigma=LEAST_SIGMA if bounded else 0.0)
    return (
        Term("box", settings.box, ciou_loss),
        Term("l1", settings.l1, L1_LOSSES[settings.l1_units]),
        Term("pose", settings.pose, partial(oks_loss, sigmas=spec.sigmas), by_pair),
        Term("kobj", settings.kobj if spec.dims == 3 else 0.0, visibility_loss, by_pair),
        Term("rle", settings.rle, likelihood, by_labelled_point, least=None if bounded else 0.0),
    )


def make_flow(widths: tuple[int, ...], nc: int) -> nn.Module:
    """The flow of both branches."""
    return RealNVP()


def keypoint_targets(instances: Instances, size: int, points: int) -> Mapping[str, Tensor]:
    """{"keypoints": (n, K, 3)}; DataError where the objects have another number of points than the task."""
    data = instances.shapes["keypoints"].data.float()
    if not len(data):
        return {"keypoints": data.new_zeros(0, points, 3)}
    if data.shape[1] != points:
        raise DataError(f"keypoints: expected objects of {points} points, as the model has, got {data.shape[1]}; train on other data")
    return {"keypoints": data}


def keypoint_shapes(outputs: Mapping[str, Tensor], points: Tensor, strides: Tensor, dims: int) -> Mapping[str, Tensor]:
    """Boxes, and keypoints (B, A, K, 3): anchor centre + raw x stride in canvas pixels, and the probability that the point is labelled."""
    raw = full(outputs["points"])
    raw = raw.unflatten(-1, (raw.shape[-1] // dims, dims))
    places = points[..., None, :] + raw[..., :2] * strides[..., None, None]
    seen = raw[..., 2:].sigmoid() if dims == 3 else torch.ones_like(places[..., :1])
    return {**box_shapes(outputs, points, strides), "keypoints": torch.cat((places, seen), -1)}


def keypoint_similarity(predicted: Mapping[str, Tensor], truth: Mapping[str, Tensor], sigmas: tuple[float, ...]) -> Tensor:
    """OKS of every anchor with every object, (B, n, A); CIoU floored at 0 for objects without a labelled point."""
    target = truth["keypoints"]
    w, h = (truth["boxes"][..., 2:] - truth["boxes"][..., :2]).unbind(-1)
    area = (AREA_SHARE * w * h)[..., None]
    similar = oks(predicted["keypoints"][:, None], target[:, :, None], area, constant(sigmas, target.device))
    pointed = (target[..., 2] > 0).any(-1)[..., None]
    return torch.where(pointed, similar, box_similarity(predicted, truth))


def level_window(points: Tensor, strides: Tensor, truth: Mapping[str, Tensor]) -> Tensor:
    """The window of detection, on levels with sqrt(w h) within RANGE strides, (B, n, A) bool; the outer levels are open outwards."""
    w, h = (truth["boxes"][..., 2:] - truth["boxes"][..., :2]).unbind(-1)
    scale = (w * h).sqrt()[..., None] / strides
    large = (scale >= RANGE[0]) | (strides == strides.amin())
    small = (scale <= RANGE[1]) | (strides == strides.amax())
    return box_window(points, strides, truth) & large & small


def finish_keypoints(
    rows: Mapping[str, Tensor], shared: Mapping[str, Tensor], skeleton: tuple[tuple[int, int], ...], dims: int
) -> Mapping[str, Shape]:
    """Boxes and keypoints of the chosen rows."""
    return {"boxes": Boxes(rows["boxes"]), "keypoints": Keypoints(rows["keypoints"], None, skeleton, predicted=True, dims=dims)}

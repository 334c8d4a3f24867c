"""The detector, from plain numbers; and its fused form. Knows no task name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ..assign.points import anchor_points
from ..errors import UsageError
from ..numerics.lanes import side_by_side
from ..rules import STRIDES
from ..types import Dense, Output
from .backbone import Backbone
from .blocks import ConvUnit
from .head import Branch, Stem
from .neck import Neck
from .scales import SCALES


class Detector(nn.Module):
    """Images (B, 3, H, W), uint8 or float in [0, 1], H and W multiples of 32 -> `Output` (arXiv 2606.03748, 3.2)."""

    def __init__(
        self, backbone: Backbone, neck: Neck, many: Branch, one: Branch, shared: nn.ModuleDict, training_only: frozenset[str]
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.neck = neck
        self.many: Branch | None = many
        self.one = one
        self.shared = shared
        self.training_only = training_only
        self._anchors: dict[tuple, tuple[Tensor, Tensor]] = {}

    def forward(self, images: Tensor) -> Output:
        height, width = images.shape[-2:]
        if height % STRIDES[-1] or width % STRIDES[-1]:
            raise UsageError(f"the image size must be a multiple of {STRIDES[-1]}, got {height}x{width}; pad or resize the images")
        maps = self.neck(self.backbone(self._prepare(images)))
        points, strides = self.anchors([tuple(x.shape[-2:]) for x in maps], images.device)
        parts = [partial(self.one, [x.detach() for x in maps]), *(partial(module, maps) for module in self.shared.values())]
        if self.many is not None:
            parts.insert(0, partial(self.many, maps))
        found = side_by_side(parts, chain(maps, self.parameters()), dict.values)
        many = None if self.many is None else Dense(found.pop(0), points, strides)
        one = Dense(found.pop(0), points, strides)
        return Output(many, one, {name: value for part in found for name, value in part.items()}, (height, width))

    def anchors(self, sizes: list[tuple], device: torch.device) -> tuple[Tensor, Tensor]:
        """`anchor_points` of these map sizes, kept on the device."""
        key = (*sizes, device)
        if key not in self._anchors:
            self._anchors[key] = anchor_points(sizes, STRIDES, device)
        return self._anchors[key]

    def _prepare(self, images: Tensor) -> Tensor:
        dtype = next(self.backbone.parameters()).dtype
        x = images.to(dtype) if images.is_floating_point() else images.to(dtype) / 255
        return x.contiguous(memory_format=torch.channels_last)

    def fuse(self, keep: str = "one") -> Detector:
        """A copy for inference with BatchNorm folded and training-only parts dropped; keep="both" retains the one-to-many branch."""
        fused = copy.deepcopy(self).eval()
        if keep == "one":
            fused.many = None
        elif keep != "both":
            raise UsageError(f'keep must be "one" or "both", got "{keep}"')
        for branch in (fused.many, fused.one):
            if branch is not None:
                branch.drop(set(self.training_only))
        for name, module in list(fused.shared.items()):
            if not module.keep(self.training_only):  # type: ignore[operator]
                del fused.shared[name]
        for unit in fused.modules():
            if isinstance(unit, ConvUnit) and isinstance(unit.bn, nn.BatchNorm2d):
                unit.conv = fuse_conv_bn_eval(unit.conv, unit.bn)
                unit.bn = nn.Identity()  # type: ignore[assignment]
        return fused.requires_grad_(False)


def build(
    scale: str,
    nc: int,
    stems: Sequence[Stem],
    shared: Mapping[str, Callable[[tuple[int, ...], int], nn.Module]] | None = None,
    training_only: Sequence[str] = (),
) -> Detector:
    """An untrained detector of one of the scales n, s, m, l, x with `nc` classes and the given per-anchor and per-image outputs.

    A module of `shared` maps the levels to named tensors; its `keep(names)` drops those of training and says whether any is left.
    """
    if scale not in SCALES:
        raise UsageError(f'the scale must be one of {", ".join(SCALES)}, got "{scale}"')
    if nc < 1:
        raise UsageError(f"a detector needs at least one class, got nc={nc}")
    neck = Neck(SCALES[scale])
    modules = nn.ModuleDict({name: make(neck.widths, nc) for name, make in (shared or {}).items()})
    dropped = frozenset(training_only).union(*(stem.training_only for stem in stems))
    return Detector(Backbone(SCALES[scale]), neck, Branch(neck.widths, nc, stems), Branch(neck.widths, nc, stems), modules, dropped)

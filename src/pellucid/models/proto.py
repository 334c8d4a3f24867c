"""Mask prototypes from all levels, and the semantic map that helps to learn them (arXiv 2606.03748, 3.4.1, Eq. 8-9)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor, nn
from torch.nn.functional import interpolate

from .blocks import ClassOutput, ConvUnit

PROTOTYPES = 32
OUTPUTS = ("proto", "semantic")


class Prototypes(nn.Module):
    """Levels at strides 8, 16, 32 -> {"proto": (B, 32, S/4, S/4), "semantic": (B, nc, S/8, S/8) logits, in training alone}."""

    def __init__(self, widths: Sequence[int], nc: int, semantic: bool = True) -> None:
        super().__init__()
        width = widths[0]
        self.refine = nn.ModuleList(ConvUnit(c, width) for c in widths[1:])
        self.fuse = ConvUnit(width, width, 3)
        self.before = ConvUnit(width, width, 3)
        self.upsample = nn.ConvTranspose2d(width, width, 2, 2)
        self.after = ConvUnit(width, width, 3)
        self.last = ConvUnit(width, PROTOTYPES)
        head = nn.Sequential(ConvUnit(width, width, 3), ConvUnit(width, width, 3), ClassOutput(width, nc)) if semantic else None
        self.semantic: nn.Sequential | None = head

    def forward(self, maps: Sequence[Tensor]) -> dict[str, Tensor]:
        finest, *coarser = maps
        fused = finest
        for refine, x in zip(self.refine, coarser, strict=True):
            fused = fused + interpolate(refine(x), size=finest.shape[-2:], mode="nearest")
        outputs = {"proto": self.last(self.after(self.upsample(self.before(self.fuse(fused)))))}
        if self.semantic is not None:
            outputs["semantic"] = self.semantic(fused)
        return outputs

    def keep(self, dropped: Collection[str]) -> bool:
        """Drop what training alone needs; the prototypes are left."""
        if "semantic" in dropped:
            self.semantic = None
        return True

"""How strongly training pictures are changed, and the published policies per model scale (arXiv 2606.03748)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import UsageError

_LIMITS = {
    "scale": 0.99,
    "translate": 1.0,
    "degrees": 180.0,
    "shear": 44.0,
}  # every other setting ends at 1; along both axes 45 degrees mirror


@dataclass(frozen=True)
class AugmentConfig:
    """Probabilities and ranges of the training augmentation; all zero changes nothing."""

    mosaic: float = 1.0
    """probability of a picture made of four"""
    mixup: float = 0.0
    """probability of blending with a second picture"""
    scale: float = 0.5
    """size drawn from [1 - scale, 1 + scale]"""
    translate: float = 0.1
    """shift drawn from +- translate times the picture size"""
    degrees: float = 0.0
    """rotation drawn from +- degrees"""
    shear: float = 0.0
    """shear along x and along y drawn from +- shear degrees"""
    fliplr: float = 0.5
    """probability of a left-right flip"""
    flipud: float = 0.0
    """probability of an upside-down flip"""
    hsv_h: float = 0.015
    """hue shift drawn from +- hsv_h turns of the colour circle"""
    hsv_s: float = 0.7
    """saturation gain drawn from 1 +- hsv_s"""
    hsv_v: float = 0.4
    """value (brightness) gain drawn from 1 +- hsv_v"""
    copy_paste: float = 0.0
    """probability that objects of another picture are pasted over one, where they have outlines"""

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            value, limit = getattr(self, name), _LIMITS.get(name, 1.0)
            if not 0 <= value <= limit:
                raise UsageError(f"{name} must be between 0 and {limit:g}, got {value}; choose a value in that range.")


OFF = AugmentConfig(mosaic=0, scale=0, translate=0, fliplr=0, hsv_h=0, hsv_s=0, hsv_v=0)


def _finetune(mixup: float, scale: float, copy_paste: float) -> AugmentConfig:
    """The searched COCO policy of s, m, l and x."""
    return AugmentConfig(0.992, mixup, scale, 0.275, fliplr=0.304, hsv_h=0.013, hsv_s=0.353, hsv_v=0.194, copy_paste=copy_paste)


PRESETS = {
    "default": AugmentConfig(),
    "off": OFF,
    "pretrain-n": AugmentConfig(copy_paste=0.1),
    "pretrain-s": AugmentConfig(mixup=0.05, scale=0.9, copy_paste=0.15),
    "pretrain-m": AugmentConfig(mixup=0.15, scale=0.9, copy_paste=0.4),
    "pretrain-l": AugmentConfig(mixup=0.15, scale=0.9, copy_paste=0.5),
    "pretrain-x": AugmentConfig(mixup=0.2, scale=0.9, copy_paste=0.6),
    "finetune-n": AugmentConfig(0.909, 0.012, 0.562, 0.071, 1.11, 1.46, 0.606, 0.0, 0.014, 0.645, 0.566, 0.075),
    "finetune-s": _finetune(0.05, 0.9, 0.404),
    "finetune-m": _finetune(0.427, 0.95, 0.304),
    "finetune-l": _finetune(0.427, 0.95, 0.404),
    "finetune-x": _finetune(0.427, 0.95, 0.404),
}

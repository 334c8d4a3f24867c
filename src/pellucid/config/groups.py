"""The headings under which the help and the reference show the settings of a verb that has many, common ones first."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

FEW = 15  # settings that need no headings
OTHERS = "Others"
GROUPS: dict[str, tuple[str, ...]] = {
    "Model": ("model", "freeze"),
    "Data": ("data", "source", "split", "imgsz", "tile", "overlap", "single_cls", "fraction", "cache", "vid_stride", "strict"),
    "Schedule": ("epochs", "patience", "nbs", "accumulate", "val_every"),
    "What counts as found": ("conf", "classes", "path", "iou", "agnostic_nms", "max_det"),
    "Machine": ("batch", "device", "workers", "precision", "half", "capture"),
    "Run": ("name", "project", "exist_ok", "resume", "seed"),
    "What is written": ("save", "save_txt", "save_conf", "save_crop", "save_json", "report", "plots", "json"),
    "Optimizer": (
        *("lr0", "lrf", "optimizer", "warmup_epochs", "weight_decay", "momentum", "warmup_momentum", "warmup_bias_lr"),
        *("clip_norm", "ema_decay", "ema_ramp"),
    ),
    "Augmentation": (
        *("preset", "mosaic", "close_mosaic", "mixup", "copy_paste", "fliplr", "flipud", "scale", "translate", "degrees", "shear"),
        *("hsv_h", "hsv_s", "hsv_v"),
    ),
    "Loss": ("box", "cls", "l1", "l1_units", "share_start", "share_end"),
    "Loss of outlines": ("mask", "semantic", "mask_weight", "mask_cells", "assign_masks", "proto_detach"),
    "Loss of keypoints": ("pose", "rle", "kobj", "rle_form", "rle_floor", "teach_far"),
    "Loss of oriented boxes": ("angle", "l1_form"),
}


def grouped(config: type) -> dict[str, list[Field[Any]]]:
    """The fields of a settings class by heading; of a few all under one that is empty."""
    every = {field.name: field for field in fields(config)}
    if len(every) <= FEW:
        return {"": list(every.values())}
    found = {heading: [every.pop(name) for name in names if name in every] for heading, names in GROUPS.items()}
    return {heading: part for heading, part in {**found, OTHERS: list(every.values())}.items() if part}

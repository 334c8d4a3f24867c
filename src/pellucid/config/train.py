"""The settings of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError
from ..rules import at_least, shared_rules, within

AUGMENT_FIELDS = ("mosaic", "mixup", "scale", "translate", "degrees", "shear", "fliplr", "flipud", "hsv_h", "hsv_s", "hsv_v", "copy_paste")


@dataclass(frozen=True)
class TrainConfig:
    """Train or fine-tune a model on your pictures and labels."""

    model: str = ""
    """What to train: "<task>-<scale>" as in detect-n (random weights), a shipped name, or a weights file to start from."""
    data: str = ""
    """The data set: a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or the name of a sample that ships."""
    epochs: int = 100
    """Passes over the training images."""
    batch: int = 16
    """Images in a step on the device."""
    imgsz: int = 640
    """Side of the square canvas in pixels, a multiple of 32."""
    device: str = "auto"
    """auto (the first GPU, else the CPU), cpu, or the number of a GPU; of several as in 0,1, each takes its batch at every step."""
    workers: int | None = None
    """Processes that read pictures; none given: one a core, at most 8."""
    project: str = "runs"
    """Folder above all runs."""
    name: str = ""
    """Name of the run folder under <project>/<task>/; none given: train."""
    exist_ok: bool = False
    """Write into a run folder that exists, in place of a numbered new one."""
    resume: str = ""
    """A run folder or its last.ckpt: go on where it stopped, with its own settings."""
    patience: int = 100
    """Stop after so many epochs without a better score; 0 never stops early."""
    seed: int = 0
    """Decides the initial weights, the order of the images and every augmentation."""
    precision: Literal["auto", "32", "16", "bf16"] = "auto"
    """Arithmetic of the network; auto: bf16 on GPUs that have it, else 16 on a GPU, else 32."""
    cache: Literal["none", "ram", "disk"] = "none"
    """Keep decoded pictures in memory (ram) or in one file (disk), so that each is decoded once."""
    fraction: float = 1.0
    """Share of the training images to use."""
    freeze: int = 0
    """Number of layers, from the image on, that keep their weights."""
    single_cls: bool = False
    """Treat all classes as one."""
    close_mosaic: int = 10
    """Mosaic and mixup are off in the last so many epochs; 0 keeps them to the end."""
    optimizer: Literal["auto", "musgd", "adamw"] = "auto"
    """musgd (Muon and SGD, the method of the paper), adamw, or auto, which is musgd."""
    lr0: float | None = None
    """Learning rate after the warm-up; none given: 0.01 for musgd, 0.01 / (4 + classes) for adamw."""
    lrf: float = 0.01
    """Final learning rate as a share of lr0, reached in a straight line."""
    momentum: float | None = None
    """Momentum (musgd) or first beta (adamw); none given: 0.937 for musgd, 0.9 for adamw."""
    weight_decay: float = 5e-4
    """Decay of matrices and kernels; biases and BatchNorm have none."""
    warmup_epochs: float = 3.0
    """Epochs in which rates and momentum move to their values."""
    warmup_momentum: float = 0.8
    """Momentum of musgd at the first step."""
    warmup_bias_lr: float | None = None
    """Learning rate of the biases at the first step; none given: 0.1 for musgd, 0 for adamw."""
    nbs: int = 64
    """Nominal batch: gradients of about nbs / batch steps are summed into one update."""
    accumulate: int | None = None
    """Steps summed into one update, in place of what nbs gives."""
    clip_norm: float = 10.0
    """Largest norm of the whole gradient; 0 does not clip."""
    ema_decay: float = 0.9999
    """Decay of the averaged weights, which are the ones scored and saved."""
    ema_ramp: float = 2000.0
    """Updates over which the averaging warms up."""
    box: float = 7.5
    """Gain of the box overlap loss."""
    cls: float = 0.5
    """Gain of the class loss."""
    l1: float = 1.5
    """Gain of the L1 loss of the box sides."""
    l1_units: Literal["image", "stride"] = "image"
    """Unit of the L1 loss: share of the image side, or strides of the level."""
    mask: float | None = None
    """Gain of the mask loss; none given: 7.5."""
    mask_weight: Literal["pair", "quality"] | None = None
    """Masks count alike (pair, the default) or by the quality of their assignment."""
    mask_cells: Literal["index", "centre"] | None = None
    """A box holds the mask cells whose index (the default) or whose centre lies in it."""
    assign_masks: bool | None = None
    """Compare masks too when predictions are assigned; none given: true."""
    proto_detach: bool | None = None
    """Keep the one-to-one branch from teaching the prototypes; none given: true."""
    semantic: float | None = None
    """Gain of the auxiliary class map of segmentation, 0 leaves it out; none given: 7.5."""
    pose: float | None = None
    """Gain of the keypoint (OKS) loss, 0 learns from the likelihood alone; none given: 12."""
    kobj: float | None = None
    """Gain of the visibility loss; none given: 1."""
    rle: float | None = None
    """Gain of the keypoint likelihood, 0 learns from OKS alone; none given: 1."""
    rle_form: Literal["double", "single"] | None = None
    """Count log sigma and the flow's density twice (double, the default) or once (single)."""
    rle_floor: Literal["loss", "sigma"] | None = None
    """Bound the likelihood loss (the default) or the deviations from below."""
    teach_far: bool | None = None
    """Objects that no prediction comes near teach all the same; none given: false."""
    angle: float | None = None
    """Gain of the angle loss of oriented boxes; none given: 1."""
    l1_form: Literal["label", "nearest"] | None = None
    """L1 of oriented boxes: sides as labelled (the default), or in the equal form nearest to the predicted angle."""
    capture: Literal["none", "loss", "network", "loss+network", "step"] = "none"
    """What runs as recorded device graphs (on CUDA devices): step, the whole of it, is fastest; the figures stay the same."""
    share_start: float = 0.8
    """Weight of the one-to-many branch in the first epoch; the one-to-one branch has the rest."""
    share_end: float = 0.1
    """Weight of the one-to-many branch in the last epoch."""
    preset: str = "default"
    """Named augmentation policy: default, off, or pretrain- or finetune- and a scale; the fields below override single values of it."""
    mosaic: float | None = None
    """Probability that four images share a canvas."""
    mixup: float | None = None
    """Probability that a second image is blended in."""
    scale: float | None = None
    """Zoom by a factor in [1 - scale, 1 + scale]."""
    translate: float | None = None
    """Shift by up to this share of the canvas."""
    degrees: float | None = None
    """Turn by up to so many degrees."""
    shear: float | None = None
    """Shear by up to so many degrees."""
    fliplr: float | None = None
    """Probability of a left-right flip."""
    flipud: float | None = None
    """Probability of an up-down flip."""
    hsv_h: float | None = None
    """Largest hue shift, in turns."""
    hsv_s: float | None = None
    """Largest relative change of saturation."""
    hsv_v: float | None = None
    """Largest relative change of brightness."""
    copy_paste: float | None = None
    """Probability that objects of another image are pasted in, where they have outlines."""
    max_det: int = 300
    """Most objects kept in an image at validation."""
    val_every: int = 1
    """Validate after every so many epochs, and after the last."""
    plots: bool = True
    """Draw label plot, batch previews, curves and matrices into the run folder."""
    report: bool = True
    """Write report.html, one page without other files: scores, curves, confusion, classes, worst and best pictures."""
    strict: bool = False
    """Make every warning about the data an error."""
    json: bool = False
    """End with one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        at_least(self, 1, "epochs", "nbs", "val_every")
        within(self, 0, 2**63 - 1, "seed")
        at_least(self, 0, "patience", "freeze", "close_mosaic", "lrf", "weight_decay", "warmup_epochs", "warmup_bias_lr")
        at_least(self, 0, "clip_norm", "ema_ramp", "box", "cls", "l1", "scale", "translate", "degrees", "shear", "hsv_h", "hsv_s", "hsv_v")
        at_least(self, 0, "mask", "semantic", "pose", "kobj", "rle", "angle")
        within(
            self,
            0,
            1,
            "mosaic",
            "mixup",
            "copy_paste",
            "fliplr",
            "flipud",
            "momentum",
            "warmup_momentum",
            "ema_decay",
            "share_start",
            "share_end",
        )
        if self.accumulate is not None:
            at_least(self, 1, "accumulate")
        if self.lr0 is not None and not 0 < self.lr0 < float("inf"):
            raise UsageError(f"lr0: expected a finite number above 0, got {self.lr0}; leave it out for the usual one")
        if not 0 < self.fraction <= 1:
            raise UsageError(f"fraction: expected a share above 0 and at most 1, got {self.fraction}; 1 uses all images")

        if self.optimizer == "adamw" and self.warmup_momentum != type(self).warmup_momentum:
            raise UsageError(
                f"warmup_momentum: expected optimizer=musgd beside it, got {self.warmup_momentum} with adamw, "
                "whose momentum has no warm-up; leave it out"
            )

    @property
    def accumulation(self) -> int:
        """Steps summed into one update."""
        return self.accumulate or max(1, round(self.nbs / (self.batch * (1 + self.device.count(",")))))

    def overrides(self) -> dict[str, float]:
        """The augmentation values that the user gave beside the preset."""
        return {name: getattr(self, name) for name in AUGMENT_FIELDS if getattr(self, name) is not None}

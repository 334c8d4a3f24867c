"""The settings of scoring and of prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError
from ..rules import at_least, shared_rules, tile_rules, within


@dataclass(frozen=True)
class ValConfig:
    """Score a model on a data set, by both decode paths."""

    model: str = ""
    """A weights file (.safetensors, .ckpt), an exported file (.onnx, _openvino) or a shipped name."""
    data: str = ""
    """The data set: a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or the name of a sample that ships."""
    split: str = "val"
    """Which split to score."""
    imgsz: int | None = None
    """Side of the canvas in pixels; none given: the size that the model was trained at."""
    batch: int = 16
    """Images in a step."""
    device: str = "auto"
    """auto (the first GPU, else the CPU), cpu, or the number of a GPU."""
    workers: int | None = None
    """Processes that read pictures; none given: one a core, at most 8."""
    precision: Literal["auto", "32", "16", "bf16"] = "auto"
    """Arithmetic of the network."""
    conf: float = 0.001
    """Lowest score that counts; a higher one than the default lowers AP."""
    iou: float = 0.7
    """Overlap above which the suppression path drops the weaker object."""
    max_det: int = 300
    """Most objects kept in an image; with tile=, in each tile."""
    tile: int | None = None
    """Cut pictures into tiles of this side in pixels and put the findings together; none given: pictures are shrunk to imgsz."""
    overlap: int | None = None
    """Pixels that neighbouring tiles share, at least the size of your objects and 5 more; none given: a third of a tile, at most 200."""
    single_cls: bool = False
    """Treat all classes as one."""
    project: str = "runs"
    """Folder above all runs."""
    name: str = ""
    """Name of the run folder under <project>/<task>/; none given: val."""
    exist_ok: bool = False
    """Write into a run folder that exists, in place of a numbered new one."""
    save_json: bool = True
    """Write predictions.json in COCO form, with your own ids."""
    plots: bool = True
    """Draw confusion matrix, curves and sample predictions."""
    report: bool = True
    """Write report.html, one page without other files: scores, curves, confusion, classes, worst and best pictures."""
    strict: bool = False
    """Make every warning about the data an error."""
    json: bool = False
    """Print the scores as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        tile_rules(self)
        within(self, 0, 1, "conf", "iou")


@dataclass(frozen=True)
class PredictConfig:
    """Find objects in pictures."""

    model: str = ""
    """A weights file (.safetensors, .ckpt), an exported file (.onnx, _openvino) or a shipped name."""
    source: str = ""
    """A picture, video, folder, glob pattern, .txt list, http(s) URL, number of a camera, or - (stdin: a picture or a list of paths)."""
    imgsz: int | None = None
    """Side of the canvas in pixels; none given: the size that the model was trained at."""
    conf: float = 0.25
    """Lowest score that is shown."""
    iou: float = 0.7
    """Overlap above which the suppression path drops the weaker object."""
    max_det: int = 300
    """Most objects kept in an image; with tile=, in each tile."""
    path: Literal["e2e", "nms"] | None = None
    """e2e: the one-to-one branch, no suppression; nms: the one-to-many branch with suppression; none given: e2e, or what a file has."""
    classes: tuple[int | str, ...] | None = None
    """Keep only these classes, by your ids or names, as in 0,3 or cat,dog."""
    agnostic_nms: bool = False
    """Suppress across classes (path nms)."""
    batch: int = 1
    """Images in a step."""
    tile: int | None = None
    """Cut pictures into tiles of this side in pixels and put the findings together; none given: pictures are shrunk to imgsz."""
    overlap: int | None = None
    """Pixels that neighbouring tiles share, at least the size of your objects and 5 more; none given: a third of a tile, at most 200."""
    vid_stride: int = 1
    """Look at every frame of a video (1), at every second one (2), ..."""
    device: str = "auto"
    """auto (the first GPU, else the CPU), cpu, or the number of a GPU."""
    precision: Literal["auto", "32", "16", "bf16"] = "32"
    """Arithmetic of the network."""
    half: bool = False
    """The same as precision=16."""
    project: str = "runs"
    """Folder above all runs."""
    name: str = ""
    """Name of the run folder under <project>/<task>/; none given: predict."""
    exist_ok: bool = False
    """Write into a run folder that exists, in place of a numbered new one."""
    save: bool = True
    """Write the pictures with the objects drawn; of a video one video."""
    save_txt: bool = False
    """Write one YOLO label file a picture."""
    save_conf: bool = False
    """Add the score to each row of the label files."""
    save_crop: bool = False
    """Cut the objects out, into crops/<class>/."""
    save_json: bool = False
    """Write predictions.json, a list of COCO results, and images.json, a COCO file that says which picture an image_id is."""
    json: bool = False
    """Print one JSON object a picture on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        tile_rules(self)
        within(self, 0, 1, "conf", "iou")
        at_least(self, 1, "vid_stride")
        if self.half and self.precision not in ("32", "16"):
            raise UsageError(f"half: expected it alone or with precision=16, got precision={self.precision}; leave one of them out")
        if self.save_conf and not self.save_txt:
            raise UsageError("save_conf: expected save_txt=true beside it, got save_conf alone; add save_txt=true")
        if self.agnostic_nms and self.path != "nms":
            raise UsageError("agnostic_nms: expected path=nms, since the e2e path suppresses nothing; add path=nms or leave it out")
        if self.iou != type(self).iou and self.path != "nms":
            raise UsageError(
                f"iou: expected path=nms, since the e2e path suppresses nothing, got iou={self.iou}; add path=nms or leave it out"
            )


@dataclass(frozen=True)
class UiConfig:
    """Open a page in the browser: drop a picture, see what a model finds, compare two."""

    model: str = ""
    """A weights file (.safetensors, .ckpt) or a shipped name to begin with; none given: the newest under runs, else one that ships."""
    other: str = ""
    """A second model to compare with; none given: one side alone."""
    source: str = ""
    """A picture to begin with."""
    conf: float = 0.25
    """Lowest score that is shown at first."""
    port: int = 7860
    """Port on 127.0.0.1, where nobody else can see it; 0: any free one."""
    device: str = "auto"
    """auto (the first GPU, else the CPU), cpu, or the number of a GPU."""
    runs: str = "runs"
    """Folder above all runs, whose weights are offered."""

    def __post_init__(self) -> None:
        shared_rules(self)
        within(self, 0, 65_535, "port")
        within(self, 0.01, 1, "conf")

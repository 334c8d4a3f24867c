"""The settings of export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError
from ..rules import at_least, shared_rules

OPSETS = (18, 22)  # the first and the last that torch writes and onnxruntime runs


@dataclass(frozen=True)
class ExportConfig:
    """Write a model as a file that runs without torch, and compare both."""

    model: str = ""
    """A weights file (.safetensors, .ckpt) or a shipped name."""
    format: Literal["onnx", "openvino"] = "onnx"
    """onnx: one file; openvino: a folder."""
    imgsz: int | None = None
    """Side of the canvas in pixels, fixed in the file; none given: the size that the model was trained at."""
    batch: int = 1
    """Pictures in a step of the comparison and, with dynamic=false, in every step of the file."""
    dynamic: bool = True
    """The file takes any number of pictures in a step; false: `batch` of them."""
    half: bool = False
    """Weights and arithmetic in float16; pictures go in as bytes and rows come out as float32 all the same."""
    head: Literal["o2o", "o2m"] = "o2o"
    """o2o: end to end, the best rows; o2m: every anchor of the one-to-many branch, suppression left to the host."""
    max_det: int = 300
    """Most rows of a picture (head o2o); fewer where the canvas has fewer anchors."""
    opset: int = 18
    """Version of the ONNX operators, from 18 to 22."""
    simplify: bool = True
    """Fold constants and drop what is not needed."""
    source: str = ""
    """Pictures on which file and torch are compared, the first 16; none given: some that ship."""
    out: str = ""
    """Where to write, a name ending in .onnx or _openvino; none given: beside the weights, or here. Only an earlier export is replaced."""
    json: bool = False
    """Print what was written and measured as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        at_least(self, 1, "batch", "max_det")
        if not OPSETS[0] <= self.opset <= OPSETS[1]:
            raise UsageError(f"opset: expected a number from {OPSETS[0]} to {OPSETS[1]}, got {self.opset}; take {OPSETS[0]}")
        if self.head != "o2o" and self.max_det != type(self).max_det:
            raise UsageError(f"max_det: expected head=o2o, since {self.head} gives every anchor, got {self.max_det}; leave it out")

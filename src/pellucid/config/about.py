"""The settings of the verbs that describe a model or the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..rules import at_least, shared_rules, within


@dataclass(frozen=True)
class InfoConfig:
    """Size and cost of a model."""

    model: str = ""
    """A name as in detect-n, or a weights file."""
    nc: int | None = None
    """Number of classes of an untrained model; none given: 80."""
    imgsz: int | None = None
    """Side of the canvas at which operations are counted; none given: the one of training or export, 640 if untrained."""
    json: bool = False
    """Print one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        if self.nc is not None:
            at_least(self, 1, "nc")


@dataclass(frozen=True)
class ReportConfig:
    """Make the page of a run anew, from the files in its folder."""

    run: str = ""
    """A run folder of train or val; its report.html is written."""
    json: bool = False
    """Print one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)


@dataclass(frozen=True)
class BenchConfig:
    """Speed of prediction on this machine, stage by stage."""

    model: str = ""
    """A name as in detect-n, a weights file, a shipped name, or an exported file."""
    source: str = ""
    """A picture to look at again and again; none given: one that ships."""
    imgsz: int | None = None
    """Side of the canvas in pixels; none given: the size that the model was trained at."""
    batch: int = 1
    """Images in a step."""
    path: Literal["e2e", "nms"] | None = None
    """e2e: the one-to-one branch, no suppression; nms: the one-to-many branch with suppression; none given: e2e, or what a file has."""
    conf: float = 0.25
    """Lowest score that is kept."""
    device: str = "auto"
    """auto (the first GPU, else the CPU), cpu, or the number of a GPU."""
    precision: Literal["auto", "32", "16", "bf16"] = "32"
    """Arithmetic of the network."""
    repeats: int = 30
    """Batches that are measured, after a few that are not."""
    json: bool = False
    """Print one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        at_least(self, 3, "repeats")
        within(self, 0, 1, "conf")


@dataclass(frozen=True)
class ZooConfig:
    """Trained weights that ship: what they find, what they were trained on, how they score."""

    json: bool = False
    """Print one JSON object a line on stdout."""


@dataclass(frozen=True)
class EnvConfig:
    """Machine and versions, for a bug report."""

    json: bool = False
    """Print one JSON object on stdout."""

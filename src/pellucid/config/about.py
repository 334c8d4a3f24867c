"""The settings of the verbs that describe a model or the machine."""

from __future__ import annotations

from dataclasses import dataclass

from ..rules import at_least, shared_rules


@dataclass(frozen=True)
class InfoConfig:
    """Size and cost of a model."""

    model: str = ""
    """A name as in detect-n, or a weights file."""
    nc: int | None = None
    """Number of classes of an untrained model; none given: 80."""
    imgsz: int = 640
    """Side of the canvas at which operations are counted."""
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
class EnvConfig:
    """Machine and versions, for a bug report."""

    json: bool = False
    """Print one JSON object on stdout."""

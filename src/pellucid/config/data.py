"""The settings of the tools for data sets."""

from __future__ import annotations

from dataclasses import dataclass

from ..rules import shared_rules, tile_rules, within


@dataclass(frozen=True)
class CheckConfig:
    """Look a data set over before hours are spent on it."""

    data: str = ""
    """The data set: a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or the name of a sample that ships."""
    task: str = "detect"
    """The task whose labels are looked for."""
    imgsz: int = 640
    """Canvas at which objects are called tiny."""
    json: bool = False
    """Print the report as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)


@dataclass(frozen=True)
class TilesConfig:
    """Cut the large pictures of a data set of rotated boxes, and their labels, into tiles: a new data set."""

    data: str = ""
    """The data set: a DOTA folder, or a YOLO data.yaml with nine-field rows."""
    out: str = ""
    """A new or empty folder for the tiles."""
    tile: int = 1024
    """Side of the tiles in pixels."""
    overlap: int = 200
    """Pixels that neighbouring tiles share, at least the size of your objects."""
    visible: float = 0.7
    """Share of an object, of what its best tile shows of it, below which it is an ignored region."""
    strict: bool = False
    """Make every warning about the data an error."""
    json: bool = False
    """Print the counts as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        tile_rules(self)
        within(self, 0, 1, "visible")

"""The settings of the tools for data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError
from ..rules import at_least, shared_rules, tile_rules, within

MOST = 256  # pictures on a sheet


@dataclass(frozen=True)
class CheckConfig:
    """Look a data set over before hours are spent on it."""

    data: str = ""
    """The data set: a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or the name of a sample that ships."""
    task: str = "detect"
    """The task whose labels are looked for: detect, segment, pose or obb."""
    imgsz: int = 640
    """Canvas at which objects are called tiny."""
    split: str = ""
    """One split alone, as val of a set that is only scored on; none given: all, and train and val must be there."""
    fix: str = ""
    """A new or empty folder for a repaired copy, with all that the files hold unless task= is given; the data stay as they are."""
    json: bool = False
    """Print the report as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        if self.fix and self.split:
            raise UsageError(f"split: expected none beside fix, which copies all splits, got {self.split!r}; leave one of them out")


@dataclass(frozen=True)
class TilesConfig:
    """Cut the large pictures of a data set of rotated boxes, and their labels, into tiles: a new data set."""

    data: str = ""
    """The data set: a DOTA folder, or a YOLO data.yaml with nine-field rows."""
    out: str = ""
    """A new or empty folder for the tiles."""
    tile: int = 1024
    """Side of the tiles in pixels."""
    overlap: int | None = None
    """Pixels that neighbouring tiles share, at least the size of your objects; none given: a third of a tile, at most 200."""
    visible: float = 0.7
    """Share of an object, of what its best tile shows of it, below which it is an ignored region (left out of YOLO rows)."""
    strict: bool = False
    """Make every warning about the data an error."""
    json: bool = False
    """Print the counts as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        tile_rules(self)
        within(self, 0, 1, "visible")


@dataclass(frozen=True)
class StatsConfig:
    """Count classes, sizes, shapes and copies of the pictures of a data set."""

    data: str = ""
    """The data set: a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or the name of a sample that ships."""
    task: str = "detect"
    """The task whose labels are counted: detect, segment, pose or obb."""
    imgsz: int = 640
    """Canvas at which objects are measured."""
    copies: bool = True
    """Look for pictures that show the same, within a split and across splits; every picture is decoded once, small."""
    json: bool = False
    """Print the numbers as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)


@dataclass(frozen=True)
class PreviewConfig:
    """Draw some pictures of a data set with their labels on one sheet."""

    data: str = ""
    """The data set: a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or the name of a sample that ships."""
    task: str = "detect"
    """The task whose labels are drawn: detect, segment, pose or obb."""
    split: str = "train"
    """The split that the pictures are of."""
    count: int = 16
    """How many pictures."""
    seed: int = 0
    """Another seed shows other pictures."""
    out: str = "runs/preview.jpg"
    """The picture file to write, .jpg or .png; numbered if there is one."""
    json: bool = False
    """Print the file and the pictures on it as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        at_least(self, 1, "count")
        at_least(self, 0, "seed")
        if self.count > MOST:
            raise UsageError(
                f"count: expected at most {MOST} pictures on a sheet, got {self.count}; take fewer, and another seed for others"
            )
        if not self.out.lower().endswith((".jpg", ".jpeg", ".png")):
            raise UsageError(f"out: expected a file that ends in .jpg or .png, got {self.out!r}; name one")


@dataclass(frozen=True)
class ConvertConfig:
    """Write a data set anew in another format; what that cannot hold is counted."""

    data: str = ""
    """The data set: a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or the name of a sample that ships."""
    out: str = ""
    """A new or empty folder."""
    to: Literal["coco", "yolo", "dota", "voc", "labelme"] | None = None
    """The format to write."""
    task: str = ""
    """The task whose labels are written, detect, segment, pose or obb; nothing: all that the files hold."""
    pictures: Literal["copy", "link"] = "copy"
    """Copy the pictures, or make symbolic links to them."""
    strict: bool = False
    """Make every warning about the data, and everything that the format cannot hold, an error."""
    json: bool = False
    """Print the counts as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)


@dataclass(frozen=True)
class SplitConfig:
    """Deal the pictures of a data set anew to train and val, class by class, copies of one picture together."""

    data: str = ""
    """The data set: a YOLO data.yaml, a folder in COCO, VOC, DOTA or LabelMe form, or the name of a sample that ships; all its splits."""
    out: str = ""
    """A new or empty folder for the data set, in the same format."""
    val: float = 0.2
    """Share of the pictures for validation."""
    test: float = 0.0
    """Share of the pictures for a test split."""
    seed: int = 0
    """The same seed deals the same data the same way."""
    task: str = ""
    """The task whose labels are written, detect, segment, pose or obb; nothing: all that the files hold."""
    pictures: Literal["copy", "link"] = "copy"
    """Copy the pictures, or make symbolic links to them."""
    strict: bool = False
    """Make every warning about the data, and everything that the format cannot hold, an error."""
    json: bool = False
    """Print the counts as one JSON object on stdout."""

    def __post_init__(self) -> None:
        shared_rules(self)
        at_least(self, 0, "seed")
        within(self, 0, 1, "val", "test")
        if self.val == 0 or self.val + self.test >= 1:
            raise UsageError(f"val: expected shares above 0 that leave some for train, got val={self.val} test={self.test}; take val=0.2")

    def shares(self) -> dict[str, float]:
        """{split: share}, train first."""
        own = {"train": 1 - self.val - self.test, "val": self.val}
        return {**own, "test": self.test} if self.test else own

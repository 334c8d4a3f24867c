"""One format a module, one flat-array Index out; which format it is is seen from what lies there, never from a flag."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from ...errors import DataError, MissingFileError, UsageError
from ..findings import settle
from ..index import DataSet
from ..samples import NAMES, sample_path
from . import coco, dota, labelme, voc, yolo
from .base import Request, check_keys, read_yaml

_EXPECTED = (
    "a data.yaml, or a folder of COCO (annotations/*.json), VOC (JPEGImages, Annotations, ImageSets), DOTA (train/labelTxt) "
    "or LabelMe (train/*.json)"
)
_FOLDERS = (coco, voc, dota, labelme)  # readers of folders: found_in(folder) -> bool, read(folder, request)


def open_dataset(
    data: str | Path, needs: tuple[str, ...] = ("boxes",), splits: tuple[str, ...] = ("train", "val"), strict: bool = False
) -> DataSet:
    """The data set at `data`, a YAML file, a folder or the name of a shipped sample, under one class map for all splits.

    Whatever is left out, clipped or doubtful is warned about with its count and first places (PellucidWarning), or raised if `strict`.
    DataError: nothing usable, an empty or missing split, or an object of a class that is not named.
    """
    dataset = read_dataset(data, needs, splits)
    settle(dataset.all_findings(), strict)
    return dataset


def read_dataset(
    data: str | Path, needs: tuple[str, ...] = ("boxes",), splits: tuple[str, ...] | None = None, copy: bool = False
) -> DataSet:
    """As `open_dataset`, with the findings neither warned about nor raised; `splits=None` reads all that there are.

    `copy`: with what a writer needs to find each object in its file again.
    """
    return _read(_existing(data), Request(tuple(needs), None if splits is None else tuple(splits), copy=copy))


def read_whole(data: str | Path, copy: bool = False) -> DataSet:
    """All splits with all kinds of labels that the files hold; an object that lacks a kind is read without it.

    UsageError for YOLO rows that are more than boxes, without kpt_shape: the task says whether they are outlines or oriented boxes.
    """
    dataset = _read(_existing(data), Request((), None, whole=True, copy=copy))
    polygons = [finding for finding in dataset.all_findings() if finding.code == "row-polygon"]
    if polygons and dataset.format == "yolo":
        raise UsageError(
            f"task: expected one beside these YOLO labels, whose rows are more than boxes ({polygons[0].places[0]}); "
            "add task=segment where they are outlines, task=obb where they are oriented boxes, task=detect for the boxes around them"
        )
    return dataset


def _read(source: Path, request: Request) -> DataSet:
    """The data set at a path that exists."""
    if source.is_dir():
        source = _yaml_in(source, request.needs) or source
    if source.is_dir():
        return _read_folder(source, request)
    if source.suffix.lower() not in (".yaml", ".yml"):
        raise DataError(f"{source}: expected {_EXPECTED}; name the YAML or the folder.")
    config = read_yaml(source)
    check_keys(source, config)
    if any(key.endswith("_json") for key in config):
        return coco.read(source, _asked(request, coco.WHOLE), config)
    return yolo.read(source, config, _asked(request, yolo.whole(config)))


def _asked(request: Request, whole: tuple[str, ...]) -> Request:
    """The request with the kinds that it means where it names none."""
    return request if request.needs else replace(request, needs=whole)


def _read_folder(source: Path, request: Request) -> DataSet:
    for reader in _FOLDERS:
        if reader.found_in(source):
            return reader.read(source, _asked(request, reader.WHOLE))
    there = ", ".join(sorted(path.name for path in source.iterdir())[:8]) or "nothing"
    raise DataError(f"{source}: expected {_EXPECTED}; found {there}; name the right folder or write a data.yaml.")


def _existing(data: str | Path) -> Path:
    source = Path(os.path.expanduser(data))
    if source.exists():
        return Path(os.path.abspath(source))
    if str(data) in NAMES:
        return sample_path(str(data))
    raise MissingFileError(
        f"{data}: expected {_EXPECTED}, or a sample ({', '.join(NAMES)}), but there is no such file or folder; check the path."
    )


def _yaml_in(folder: Path, needs: tuple[str, ...]) -> Path | None:
    """The YAML that describes a folder: data.yaml, or the only one that names a training or validation split.

    None where it says nothing of the keypoints that are needed and COCO files lie beside it.
    """
    if (folder / "data.yaml").is_file():
        silent = "keypoints" in needs and not {"kpt_shape", "train_json"} & read_yaml(folder / "data.yaml").keys()
        return None if silent and coco.found_in(folder) else folder / "data.yaml"
    found = [path for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]) if {"train", "val"} & set(read_yaml(path))]
    if len(found) > 1:
        raise DataError(f"{folder}: expected one YAML file, found {', '.join(path.name for path in found)}; name the one you mean.")
    return found[0] if found else None

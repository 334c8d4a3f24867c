"""One format a module, one flat-array Index out; which format it is is seen from what lies there, never from a flag."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import DataError, MissingFileError
from ..findings import settle
from ..index import DataSet
from ..samples import NAMES, sample_path
from . import coco, dota, labelme, voc, yolo
from .base import Request, read_yaml

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


def read_dataset(data: str | Path, needs: tuple[str, ...] = ("boxes",), splits: tuple[str, ...] | None = None) -> DataSet:
    """As `open_dataset`, with the findings neither warned about nor raised; `splits=None` reads all that there are."""
    source = _existing(data)
    if source.is_dir():
        source = _yaml_in(source, needs) or source
    request = Request(tuple(needs), None if splits is None else tuple(splits))
    if source.is_dir():
        return _read_folder(source, request)
    if source.suffix.lower() not in (".yaml", ".yml"):
        raise DataError(f"{source}: expected {_EXPECTED}; name the YAML or the folder.")
    config = read_yaml(source)
    if any(key.endswith("_json") for key in config):
        return coco.read(source, request, config)
    return yolo.read(source, config, request)


def _read_folder(source: Path, request: Request) -> DataSet:
    for reader in _FOLDERS:
        if reader.found_in(source):
            return reader.read(source, request)
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

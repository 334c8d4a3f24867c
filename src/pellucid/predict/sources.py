"""What a user may call a source, as a stream of pictures, each with a name of its own for what is written about it."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from ..data.images import SUFFIXES, unique_name
from ..errors import DataError, MissingFileError, UsageError

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".gif")


@dataclass(frozen=True)
class Source:
    """One picture, not yet read."""

    image: Path | bytes | np.ndarray | Image.Image
    path: str  # what a user sees
    name: Path  # relative, unique without its suffix too


def open_sources(source: Any) -> Iterator[Source]:
    """Pictures of a file, folder, glob pattern, .txt list, PIL image, RGB array (h, w[, 3]), tensor ([B,] 3, H, W), or a list of these.

    A folder is read with all its folders, in natural order (2 before 10), one directory at a time; names mirror its tree. Hidden files
    and files that are not pictures by their suffix are passed over. Wrong kinds raise UsageError at once, missing files
    MissingFileError.
    """
    if isinstance(source, str | Path):
        return _of_path(os.fspath(source))
    if isinstance(source, Iterable) and not isinstance(source, bytes | np.ndarray | Tensor | Image.Image):
        return _of_list(list(source))
    return iter(_of_pixels(source))


def natural(name: str) -> list[Any]:
    """Sorting key: numbers within names by their value."""
    return [int(part) if part.isdecimal() else part.casefold() for part in re.split(r"(\d+)", name)]


def _of_path(text: str) -> Iterator[Source]:
    path = Path(text)
    if re.match(r"[a-z][a-z0-9+.-]+://", text, re.IGNORECASE) or text == "-" or (text.isdecimal() and not path.exists()):
        raise UsageError(
            f"source: expected a picture, folder, glob or list, got {text!r}; URLs, cameras, streams are not read, save pictures first"
        )
    if path.is_dir():
        return _of_folder(path)
    if path.suffix.lower() in VIDEOS:
        raise UsageError(f"source: expected pictures, got {text!r}; videos are not read yet, cut it into frames first")
    if path.is_file():
        return _of_text(path) if path.suffix.lower() == ".txt" else iter([Source(path, text, Path(path.name))])
    if glob.has_magic(text):
        return _of_glob(text)
    raise MissingFileError(f"{text}: expected a picture, folder, glob or list, found nothing there; check the path")


def _of_folder(folder: Path) -> Iterator[Source]:
    found = False
    for path, name in _walk(folder, Path(), set()):
        found = True
        yield Source(path, str(path), name)
    if not found:
        raise DataError(f"{folder}: expected pictures ({', '.join(SUFFIXES)}), found none; check the folder")


def _walk(folder: Path, below: Path, seen: set[tuple[int, int]]) -> Iterator[tuple[Path, Path]]:
    """Pictures under `folder` with their unique names; a directory that links lead back to is entered once."""
    state = folder.stat()
    if (state.st_dev, state.st_ino) in seen:
        return
    seen.add((state.st_dev, state.st_ino))
    taken: set[Path] = set()
    for entry in sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=lambda entry: natural(entry.name)):
        if entry.is_dir():
            yield from _walk(entry, below / entry.name, seen)
        elif entry.suffix.lower() in SUFFIXES:
            yield entry, unique_name(below / entry.name, taken)


def _of_text(path: Path) -> Iterator[Source]:
    """Paths in a list file, one a line, relative to the file."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    items = [path.parent / line for line in lines if line and not line.startswith("#")]
    if not items:
        raise DataError(f"{path}: expected a path to a picture on each line, found no line; add some")
    return _of_paths(items)


def _of_glob(pattern: str) -> Iterator[Source]:
    paths = [Path(found) for found in glob.iglob(pattern, recursive=True)]
    paths = sorted((path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()), key=lambda path: natural(str(path)))
    if not paths:
        raise MissingFileError(f"{pattern}: expected pictures that fit this pattern, found none; quote it and check it")
    return _of_paths(paths)


def _of_paths(paths: list[Path]) -> Iterator[Source]:
    """Files as they come; names mirror the tree below the folder that all share."""
    base = os.path.commonpath([os.path.abspath(path.parent) for path in paths])
    taken: set[Path] = set()
    for path in paths:
        yield Source(path, str(path), unique_name(Path(os.path.relpath(os.path.abspath(path), base)), taken))


def _of_list(items: list[Any]) -> Iterator[Source]:
    """Items of any kind, in order; plain files are named by their tree, the rest get unique names."""
    if not items:
        raise UsageError("source: expected at least one picture, got an empty list")
    if all(isinstance(item, str | Path) and Path(item).suffix.lower() in SUFFIXES and not Path(item).is_dir() for item in items):
        return _of_paths([Path(item) for item in items])
    streams = [open_sources(item) for item in items]
    return _renamed(source for stream in streams for source in stream)


def _renamed(sources: Iterable[Source]) -> Iterator[Source]:
    taken: set[Path] = set()
    for source in sources:
        yield replace(source, name=unique_name(source.name, taken))


def _of_pixels(source: Any) -> list[Source]:
    if isinstance(source, Tensor):
        images = [*source] if source.dim() == 4 else [source]
        return [Source(_from_tensor(image), f"image{i}", Path(f"image{i}.jpg")) for i, image in enumerate(images)]
    if isinstance(source, bytes | np.ndarray):
        return [Source(source, "image0", Path("image0.jpg"))]
    if isinstance(source, Image.Image):
        opened_from = getattr(source, "filename", "")
        return [Source(source, opened_from or "image0", Path(Path(opened_from).name or "image0.jpg"))]
    raise UsageError(f"source: expected a path, picture, array, tensor or a list of them, got {type(source).__name__}")


def _from_tensor(image: Tensor) -> np.ndarray:
    if image.dim() != 3 or image.shape[0] not in (1, 3):
        raise UsageError(f"source: expected a tensor of shape (3, H, W) or (B, 3, H, W), got {tuple(image.shape)}; put channels first")
    return image.detach().cpu().permute(1, 2, 0).numpy()

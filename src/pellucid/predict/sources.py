"""What a user may call a source, as a stream of pictures, each with a name of its own for what is written about it."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from PIL import Image
from torch import Tensor

from ..data.images import SUFFIXES, read_first, unique_name
from ..data.readers.base import read_text
from ..errors import DataError, MissingFileError, PellucidError, UsageError
from ..types import Frame
from .remote import fetch, is_url, name_of
from .video import VIDEOS, camera_frames, video_frames

NOTHING = "source: expected at least one picture, got an empty list"
MOST = 2**28  # bytes of a list or a picture on stdin
Picture = Path | bytes | np.ndarray | Image.Image
Stream = Iterator["Source"]


@dataclass(frozen=True)
class Source:
    """One picture, not yet read."""

    image: Picture | Callable[[], Picture]
    path: str  # what a user sees
    name: Path  # relative, unique without its suffix too
    frame: Frame | None = None  # of a video

    def read(self) -> np.ndarray:
        """Pixels (h, w, 3) uint8 RGB; DataError, which knows the `picture`, where there are none."""
        return self.read_first()[0]

    def read_first(self) -> tuple[np.ndarray, int]:
        """As `read`, and of how many pages these are the first."""
        try:
            return read_first(self.image() if callable(self.image) else self.image)
        except DataError as error:
            error.picture = self.path
            raise


def open_sources(source: Any, color: str = "rgb", vid_stride: int = 1) -> Stream:
    """Pictures of whatever a user may call a source; see below. Wrong kinds raise UsageError at once, missing files MissingFileError.

    A picture, video (every `vid_stride`-th frame), folder, glob pattern, .txt list, http(s) URL, camera number, or "-": stdin, with one
    picture or a list of paths. A PIL image, an encoded picture's bytes or a binary file that is open, an array (h, w[, 1 to 4]), a tensor
    ([B,] 1 or 3, H, W); arrays and tensors are RGB, or BGR by `color`. A list of any of these, or an iterator, which is asked for one at a
    time; an item that cannot be opened is a picture that cannot be read.

    A folder is read with all its folders, in natural order (2 before 10), one directory at a time; names mirror its tree. Hidden files and
    files that are neither pictures nor videos by their suffix are passed over.
    """
    _check(source, color, vid_stride)
    if isinstance(source, str | Path):
        return _of_path(os.fspath(source), vid_stride)
    if hasattr(source, "read"):
        return iter([_of_open_file(source)])
    if isinstance(source, int) and not isinstance(source, bool):
        return _of_video(str(source), camera_frames(source, vid_stride))
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes | np.ndarray | Tensor | Image.Image):
        return _of_list(list(source) if isinstance(source, list | tuple) else source, color, vid_stride)
    return iter(_of_pixels(source, color))


def named_paths(source: str) -> Iterator[str]:
    """The files and folders that a source on the command line names: those of a list or a pattern, else the source itself."""
    path = Path(source)
    if os.path.isfile(path) and path.suffix.lower() == ".txt":
        yield from _lines(os.fsdecode(read_text(path, MOST)), path.parent)
    elif not os.path.exists(path) and glob.has_magic(source) and not is_url(source):
        yield from glob.iglob(source, recursive=True)
    else:
        yield source


def natural(name: str) -> list[Any]:
    """Sorting key: numbers within names by their value."""
    return [int(part) if part.isdecimal() else part.casefold() for part in re.split(r"(\d+)", name)]


def _check(source: Any, color: str, stride: int) -> None:
    if color not in ("rgb", "bgr"):
        raise UsageError(f"color: expected rgb or bgr, got {color!r}; choose one of them")
    parts = source if isinstance(source, list | tuple) else [source]
    asked = isinstance(source, Iterator) and not hasattr(source, "read")  # what it gives is not known yet
    if color != "rgb" and not asked and not any(isinstance(part, np.ndarray | Tensor) for part in parts):
        raise UsageError(
            f"color: expected arrays beside color={color}, got {type(source).__name__}; files say their own order, leave it out"
        )
    if isinstance(stride, bool) or not isinstance(stride, int) or stride < 1:
        raise UsageError(f"vid_stride: expected a whole number of at least 1, got {stride!r}; take 1 for every frame")
    if stride > 1 and not asked and all(_is_still(part) for part in parts):
        raise UsageError(f"vid_stride: expected a video beside vid_stride={stride}, got pictures; leave it out")


def _is_still(part: Any) -> bool:
    return not isinstance(part, int | str | Path) or (not isinstance(part, int) and Path(part).suffix.lower() in SUFFIXES)


def _of_path(text: str, stride: int) -> Stream:
    path = Path(text)
    if is_url(text):
        return _of_url(text, stride)
    if text == "-":
        return _of_stdin(stride)
    if text.isdecimal() and not os.path.exists(path):
        return _of_video(text, camera_frames(int(text), stride))
    if os.path.isdir(path):  # no error of absurd names
        return _of_folder(path, stride)
    if os.path.isfile(path):
        return _of_text(path, stride) if path.suffix.lower() == ".txt" else _of_file(path, Path(path.name), stride)
    if glob.has_magic(text):
        return _of_glob(text, stride)
    raise MissingFileError(f"{text}: expected a picture, video, folder, glob or list, found nothing there; check the path")


def _of_file(path: Path, name: Path, stride: int) -> Stream:
    if path.suffix.lower() in VIDEOS:
        return _of_video(str(path), video_frames(str(path), name, stride))
    return iter([Source(path, str(path), name)])


def _of_video(place: str, frames: Iterator[tuple[np.ndarray, Frame]]) -> Stream:
    """The frames as pictures, six digits of their number as names in a folder that is called as the video."""
    for image, frame in frames:
        yield Source(image, place, frame.video / f"{frame.index:06d}.jpg", frame)


def _of_url(url: str, stride: int) -> Stream:
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError(f"source: expected an http:// or https:// URL, got {url!r}; save it as a file first")
    name = name_of(url)
    if name.suffix.lower() in VIDEOS:
        return _of_video(url, video_frames(url, name, stride))
    return iter([Source(partial(fetch, url), url, name)])


def _of_open_file(file: Any) -> Source:
    """One encoded picture, from where the file stands."""
    content = file.read(MOST + 1)
    if not isinstance(content, bytes):
        raise UsageError(
            f"source: expected a file that is open in binary mode, got one that gives {type(content).__name__}; open it with 'rb'"
        )
    if len(content) > MOST:
        raise DataError(f"source: expected a picture of at most {MOST >> 20} MiB in an open file, got more; give its path")
    called = getattr(file, "name", None)
    name = called if isinstance(called, str) and Path(called).name else "image0"
    return Source(content, name, Path(Path(name).name if Path(name).suffix else f"{Path(name).name}.jpg"))


def _of_stdin(stride: int) -> Stream:
    """One encoded picture, or a list of paths relative to the working folder."""
    content = sys.stdin.buffer.read(MOST + 1)
    if not content.strip():
        raise DataError("stdin: expected an encoded picture or a list of paths, got nothing; pipe something in")
    if len(content) > MOST:
        raise DataError(f"stdin: expected at most {MOST >> 20} MiB, got more; save it as files first")
    if b"\0" in content[:4096]:  # no path holds one, and every picture does
        if stride > 1:
            raise UsageError(f"vid_stride: expected a video beside vid_stride={stride}, got a picture on stdin; leave it out")
        return iter([Source(content, "stdin", Path("stdin.jpg"))])
    return _of_lines(os.fsdecode(content), Path(), "stdin", stride)


def _of_folder(folder: Path, stride: int) -> Stream:
    found = False
    for path, name in _walk(folder, Path(), set()):
        found = True
        yield from _reachable(path, name, stride)
    if not found:
        raise DataError(f"{folder}: expected pictures ({', '.join(SUFFIXES)}) or videos, found none; check the folder")


def _walk(folder: Path, below: Path, seen: set[tuple[int, int]]) -> Iterator[tuple[Path, Path]]:
    """Pictures and videos under `folder` with their unique names; a directory that links lead back to is entered once."""
    try:
        state, entries = folder.stat(), [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"{folder}: cannot be listed ({error.strerror}); check its permissions") from None
    if (state.st_dev, state.st_ino) in seen:
        return
    seen.add((state.st_dev, state.st_ino))
    taken: set[Path] = set()
    for entry in sorted(entries, key=lambda entry: natural(entry.name)):
        if entry.is_dir():
            yield from _walk(entry, below / entry.name, seen)
        elif entry.suffix.lower() in SUFFIXES + VIDEOS:
            yield entry, unique_name(below / entry.name, taken)


def _of_text(path: Path, stride: int) -> Stream:
    """Paths in a list file, one a line, relative to the file."""
    return _of_lines(os.fsdecode(read_text(path, MOST)), path.parent, str(path), stride)


def _of_lines(text: str, base: Path, place: str, stride: int) -> Stream:
    items = _lines(text, base)
    if not items:
        raise DataError(f"{place}: expected a path to a picture on each line, found no line; add some")
    return _of_paths(items, stride)


def _lines(text: str, base: Path) -> list[str]:
    lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines()]
    return [line if is_url(line) else str(base / line) for line in lines if line and not line.startswith("#")]


def _of_glob(pattern: str, stride: int) -> Stream:
    paths = [Path(found) for found in glob.iglob(pattern, recursive=True)]
    paths = sorted((path for path in paths if path.suffix.lower() in SUFFIXES + VIDEOS and path.is_file()), key=lambda p: natural(str(p)))
    if not paths:
        raise MissingFileError(f"{pattern}: expected pictures that fit this pattern, found none; quote it and check it")
    return _of_paths([str(path) for path in paths], stride)


def _of_paths(items: list[str], stride: int) -> Stream:
    """Files and URLs as they come; names of files mirror the tree below the folder that all share."""
    parents = [os.path.abspath(Path(item).parent) for item in items if not is_url(item)]
    base = os.path.commonpath(parents) if parents else ""
    taken: set[Path] = set()
    for item in items:
        if is_url(item):
            yield from _renamed([_of_url(item, stride)], taken)
        else:
            yield from _reachable(Path(item), unique_name(Path(os.path.relpath(os.path.abspath(item), base)), taken), stride)


def _reachable(path: Path, name: Path, stride: int) -> Stream:
    """As `_of_file`; what cannot be opened, or breaks off, is one picture that cannot be read."""
    try:
        yield from _of_file(path, name, stride)
    except PellucidError as error:
        yield _unread(error, str(path), name)


def _unread(error: Exception, place: str, name: Path) -> Source:
    """A picture that fails with `error` when it is read."""
    return Source(partial(_fail, type(error) if isinstance(error, DataError) else DataError, str(error)), place, name)


def _fail(kind: type[DataError], sentence: str) -> NoReturn:
    raise kind(sentence)


def _of_list(items: Iterable[Any], color: str, stride: int) -> Stream:
    """Items of any kind, in order; plain files are named by their tree, the rest get unique names."""
    if isinstance(items, list) and not items:
        raise UsageError(NOTHING)
    if isinstance(items, list) and all(_is_plain(item) for item in items):
        return _of_paths([os.fspath(item) for item in items], stride)
    streams = (_of_item(item, color, stride) for item in items)
    return _renamed(list(streams) if isinstance(items, list) else streams, set())


def _of_item(item: Any, color: str, stride: int) -> Stream:
    """As `open_sources`; what cannot be opened, or breaks off, is one picture that cannot be read."""
    try:
        stream = open_sources(item, color if isinstance(item, np.ndarray | Tensor) else "rgb", 1 if _is_still(item) else stride)
    except (DataError, OSError) as error:
        return iter([_unread(error, str(item), Path("unread.jpg"))])
    return _to_the_end(stream, str(item)) if isinstance(item, str | Path | int) else stream


def _to_the_end(stream: Stream, place: str) -> Stream:
    try:
        yield from stream
    except (DataError, OSError) as error:
        yield _unread(error, place, Path("unread.jpg"))


def _is_plain(item: Any) -> bool:
    """Whether this is a picture or a video by its name alone."""
    return isinstance(item, str | Path) and Path(item).suffix.lower() in SUFFIXES + VIDEOS and not os.path.isdir(Path(item))


def _renamed(streams: Iterable[Stream], taken: set[Path]) -> Stream:
    """The sources with names that were not yet taken; all frames of one video keep one."""
    stream: Stream | None = None
    for stream in streams:
        videos: dict[Path, Path] = {}
        for source in stream:
            if source.frame is None:
                yield replace(source, name=unique_name(source.name, taken))
                continue
            old = source.frame.video
            if old not in videos:
                videos[old] = unique_name(old, taken)
            yield replace(source, name=videos[old] / source.name.name, frame=replace(source.frame, video=videos[old]))
    if stream is None:
        raise UsageError(NOTHING)


def _of_pixels(source: Any, color: str) -> list[Source]:
    if isinstance(source, Tensor):
        images = [*source] if source.dim() == 4 else [source]
        return [Source(_in_rgb(_from_tensor(image), color), f"image{i}", Path(f"image{i}.jpg")) for i, image in enumerate(images)]
    if isinstance(source, np.ndarray):
        return [Source(_in_rgb(source, color), "image0", Path("image0.jpg"))]
    if isinstance(source, bytes):
        return [Source(source, "image0", Path("image0.jpg"))]
    if isinstance(source, Image.Image):
        opened_from = getattr(source, "filename", "")
        return [Source(source, opened_from or "image0", Path(Path(opened_from).name or "image0.jpg"))]
    raise UsageError(f"source: expected a path, picture, array, tensor or a list of them, got {type(source).__name__}")


def _in_rgb(array: np.ndarray, color: str) -> np.ndarray:
    """An array (h, w[, channels]) with its first three channels in the order red, green, blue."""
    if color == "rgb" or array.ndim != 3 or array.shape[2] < 3:
        return array
    return array[..., [2, 1, 0, *range(3, array.shape[2])]]


def _from_tensor(image: Tensor) -> np.ndarray:
    if image.dim() != 3 or image.shape[0] not in (1, 3):
        raise UsageError(f"source: expected a tensor of shape (3, H, W) or (B, 3, H, W), got {tuple(image.shape)}; put channels first")
    image = image.detach().cpu()
    return (image.float() if image.is_floating_point() else image).permute(1, 2, 0).numpy()

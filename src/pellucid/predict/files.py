"""What is written about results: drawn pictures and videos, crops, label rows, COCO records; one by one, in constant memory."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ..errors import UsageError
from ..results import Result
from .video import VideoWriter


@dataclass(frozen=True)
class Kept:
    """What to write."""

    save: bool = True  # pictures with the objects drawn; of a video one video, as fast and as large as it was
    save_txt: bool = False
    save_conf: bool = False
    save_crop: bool = False
    save_json: bool = False
    exist_ok: bool = False  # label files of an earlier run are replaced


def keep_apart(paths: Iterable[str], folder: Path) -> None:
    """Raise UsageError where one of `paths` lies in `folder`, or is a folder that it lies in."""
    for path in paths if folder.is_dir() else ():
        place, parent = os.path.realpath(path), os.path.realpath(folder)
        inside = place == parent or place.startswith(parent + os.sep)
        above = os.path.isdir(place) and parent.startswith(place.rstrip(os.sep) + os.sep)
        if os.path.exists(place) and (inside or above):
            raise UsageError(
                f"name: expected a run folder from which no picture is read, since it would be drawn over, got {folder} and the source "
                f"{path}; choose another name=, or leave exist_ok out"
            )


def write_results(results: Iterable[Result], folder: Path, kept: Kept) -> Generator[Result]:
    """The same results, each written to `folder` when it comes by; files are whole when the iterator ends or is closed."""
    with ExitStack() as stack:
        records = stack.enter_context(_Records(folder / "predictions.json")) if kept.save_json else None
        drawn = stack.enter_context(_Drawn(folder))
        for result in results:
            if kept.exist_ok:
                keep_apart([result.path], folder)
            if kept.save:
                drawn.add(result)
            if kept.save_txt:
                result.save_txt(folder / "labels" / result.name.with_suffix(".txt"), kept.save_conf, kept.exist_ok)
            if kept.save_crop:
                result.save_crop(folder / "crops")
            if records is not None:
                records.add(result)
            yield result


class _Drawn:
    """Drawn pictures as files; the frames of a video that follow each other as one video."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.video: tuple[Path, VideoWriter] | None = None

    def add(self, result: Result) -> None:
        if result.frame is None:
            result.save(self.folder)
            return
        if self.video is None or self.video[0] != result.frame.video:
            self.close()
            path = self.folder / result.frame.video.with_suffix(".mp4")
            self.video = result.frame.video, VideoWriter(path, result.orig_shape, result.frame.rate)
        self.video[1].add(result.plot())

    def close(self) -> None:
        if self.video is not None:
            self.video[1].close()
        self.video = None

    def __enter__(self) -> _Drawn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Records:
    """One JSON list, written record by record, under its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".part")
        self.file = self.partial.open("w", encoding="utf-8")
        self.gap = "[\n"

    def add(self, result: Result) -> None:
        for record in result.to_coco():
            self.file.write(self.gap + json.dumps(record))
            self.gap = ",\n"

    def __enter__(self) -> _Records:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.file.write("[]" if self.gap == "[\n" else "\n]")
        self.file.close()
        os.replace(self.partial, self.path)

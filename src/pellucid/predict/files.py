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
        records = stack.enter_context(_Records(folder)) if kept.save_json else None
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
    """predictions.json, a list of COCO results, and images.json, a COCO file without annotations that says whose they are.

    Both are written record by record, and under their names when they are whole.
    """

    def __init__(self, folder: Path) -> None:
        self.found = _Growing(folder / "predictions.json", "[")
        self.images = _Growing(folder / "images.json", '{"annotations": [],\n"images": [')
        self.categories: list[dict[str, object]] = []

    def add(self, result: Result) -> None:
        place = {} if result.frame is None else {"frame": result.frame.index, "time": result.frame.time}
        size = {"width": result.meta.width, "height": result.meta.height}
        self.images.add({"id": result.meta.id, "file_name": result.path, **size, **place})
        for record in result.to_coco():
            self.found.add({"image_id": record["image_id"], "file_name": result.path, **record})
        pairs = zip(result.category_ids, result.names, strict=True)
        self.categories = self.categories or [{"id": number, "name": name} for number, name in pairs]

    def __enter__(self) -> _Records:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.found.close("]")
        self.images.close(f'],\n"categories": {json.dumps(self.categories)}}}')


class _Growing:
    """A JSON list within a file that grows under another name until it is closed."""

    def __init__(self, path: Path, head: str) -> None:
        self.path, self.partial = path, path.with_name(path.name + ".part")
        self.file = self.partial.open("w", encoding="utf-8")
        self.file.write(head)
        self.gap = "\n"

    def add(self, record: dict[str, object]) -> None:
        self.file.write(self.gap + json.dumps(record))
        self.gap = ",\n"

    def close(self, tail: str) -> None:
        self.file.write(("" if self.gap == "\n" else "\n") + tail)
        self.file.close()
        os.replace(self.partial, self.path)

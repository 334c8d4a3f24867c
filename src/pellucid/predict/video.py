"""Videos and cameras as frames, and drawn frames as a video, through PyAV (the extra `video`)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, MissingFileError, UsageError
from ..types import Frame

VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".gif")
PATIENCE = 10.0  # seconds in which a distant video must answer
USUAL_RATE = 25.0  # frames a second where a stream does not say
_FILE, _WEB = "file", "http,https,tcp,tls,crypto"  # what a video may open: a playlist in disguise reaches nothing else


def video_frames(place: str, name: Path, stride: int = 1) -> Iterator[tuple[np.ndarray, Frame]]:
    """Every `stride`-th frame (h, w, 3) uint8 RGB, upright, of a video file or an http(s) URL.

    It is opened at once: UsageError without PyAV, DataError where there is no video; a broken frame is a DataError at its place.
    """
    allowed = _WEB if place.lower().startswith(("http://", "https://")) else _FILE
    container = _opened(place, options={"protocol_whitelist": allowed}, timeout=PATIENCE if allowed == _WEB else None)
    return _frames(container, place, name, stride)


def camera_frames(number: int, stride: int = 1) -> Iterator[tuple[np.ndarray, Frame]]:
    """Frames of camera `number` until the caller stops; MissingFileError where there is none."""
    device = Path(f"/dev/video{number}")
    if not device.exists():
        raise MissingFileError(f"source={number}: expected a camera at {device}, found none; plug it in or choose another number")
    return _frames(_opened(str(device), format="v4l2"), str(device), Path(f"camera{number}.mp4"), stride)


def upright(image: np.ndarray, turned: int) -> np.ndarray:
    """`image` (h, w, 3) turned anticlockwise by `turned` degrees, to the nearest quarter, as its container asks for."""
    return np.ascontiguousarray(np.rot90(image, round(turned / 90)))


class VideoWriter:
    """Frames of one size, written one by one to an .mp4 file."""

    def __init__(self, path: Path, size: tuple[int, int], rate: float) -> None:
        av = _library()
        self.path, self.size = path, size
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.container = av.open(str(path), "w")
            codec, options = _codec(av)
            self.stream = self.container.add_stream(codec, rate=Fraction(rate).limit_denominator(1001), options=options)
        except (OSError, ValueError, av.error.FFmpegError) as error:
            raise UsageError(f"{path}: expected a place for a video, got {error}; choose another folder or save=false") from None
        self.stream.height, self.stream.width, self.stream.pix_fmt = *size, "yuv420p"
        self.stream.bit_rate = max(400_000, round(4 * size[0] * size[1] * min(rate, 60) / 25))

    def add(self, image: np.ndarray) -> None:
        """Write one frame (h, w, 3) uint8 RGB."""
        if image.shape[:2] != self.size:
            raise DataError(f"{self.path}: expected frames of {self.size}, got one of {image.shape[:2]}; use save=false for this video")
        self.container.mux(self.stream.encode(_library().VideoFrame.from_ndarray(image, format="rgb24")))

    def close(self) -> None:
        self.container.mux(self.stream.encode())
        self.container.close()


def _library() -> Any:
    try:
        import av
    except ImportError:
        raise UsageError("videos: expected the package av, found none; pip install 'pellucid[video]'") from None
    return av


def _codec(av: Any) -> tuple[str, dict[str, str]]:
    """An encoder under a permissive licence, and how to run it: VP9, which browsers play, else MPEG-4."""
    try:
        av.codec.Codec("libvpx-vp9", "w")
    except ValueError:
        return "mpeg4", {}
    return "libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}


def _opened(place: str, **options: Any) -> Any:
    av = _library()
    try:
        container = av.open(place, **options)
    except (OSError, ValueError, av.error.FFmpegError) as error:
        raise DataError(f"{place}: expected a video that can be opened, got {_reason(error)}; check or replace it") from None
    if container.streams.video:
        return container
    container.close()
    raise DataError(f"{place}: expected a video, got a file without pictures; check or replace it")


def _frames(container: Any, place: str, name: Path, stride: int) -> Iterator[tuple[np.ndarray, Frame]]:
    """The frames that are asked for; DataError where the video breaks off or has none."""
    found = False
    with container:
        try:
            for pair in _decoded(container, name, stride):
                found = True
                yield pair
        except (OSError, ValueError, _library().error.FFmpegError) as error:
            raise DataError(f"{place}: expected a video that is whole, got one that breaks off ({_reason(error)}); replace it") from None
    if not found:
        raise DataError(f"{place}: expected a video with frames, found none; check or replace it")


def _decoded(container: Any, name: Path, stride: int) -> Iterator[tuple[np.ndarray, Frame]]:
    stream = container.streams.video[0]
    stream.thread_type = "AUTO"
    rate = float(stream.average_rate or stream.guessed_rate or USUAL_RATE)
    steady = stream.average_rate == stream.base_rate  # then the number says more than the time stamps of some containers
    start = None
    for index, frame in enumerate(container.decode(stream)):
        start = frame.time if start is None else start
        if index % stride == 0:
            time = index / rate if steady or frame.time is None or start is None else frame.time - start
            yield upright(frame.to_ndarray(format="rgb24"), frame.rotation), Frame(index, round(time, 6), rate / stride, name)


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).splitlines()[0][:120]

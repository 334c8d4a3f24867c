"""Memory of prediction as JSON, on a video and on a folder of pictures: `python bench/stream.py [frames=500] [pictures=5000] [imgsz=160]`.

Resident memory is read after a tenth of the pictures and at the end; the second may be at most a tenth above the first. Everything that
the command line can write is written.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from pellucid.predict import predict
from pellucid.predict.files import Kept, write_results
from pellucid.predict.video import VideoWriter
from pellucid.zoo import open_model

DEFAULTS = {"frames": "500", "pictures": "5000", "imgsz": "160", "model": "trees-detect-n"}
MOST = 1.10  # of the memory after the warm-up


def picture(number: int, size: tuple[int, int]) -> np.ndarray:
    """Noise in large blocks, (height, width, 3) uint8, another for each number."""
    blocks = np.random.default_rng(number).integers(0, 256, (size[0] // 8, size[1] // 8, 3), np.uint8)
    return blocks.repeat(8, 0).repeat(8, 1)


def make_video(path: Path, frames: int, size: tuple[int, int] = (480, 640)) -> Path:
    """A video of `frames` pictures at 25 a second."""
    writer = VideoWriter(path, size, 25)
    for number in range(frames):
        writer.add(picture(number, size))
    writer.close()
    return path


def make_folder(path: Path, pictures: int, size: tuple[int, int] = (120, 160)) -> Path:
    """A folder of JPEG files."""
    path.mkdir()
    for number in range(pictures):
        Image.fromarray(picture(number, size)).save(path / f"{number}.jpg")
    return path


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def watch(results, warm: int) -> tuple[int, int, int]:
    """How many results came, and the resident bytes after `warm` of them and at the end."""
    count, first = 0, 0
    for _ in results:
        count += 1
        if count == warm:
            first = resident()
    return count, first, resident()


def measure(source: Path, count: int, out: Path, opened, imgsz: int) -> dict:
    """The figures of one source with `count` pictures, written to the new folder `out`."""
    out.mkdir()
    kept = Kept(save=True, save_txt=True, save_crop=True, save_json=True)
    began = time.perf_counter()
    found, first, last = watch(write_results(predict(*opened, source, imgsz=imgsz, batch=4), out, kept), max(1, count // 10))
    if found != count:
        raise SystemExit(f"{source}: expected {count} results, got {found}")
    seconds = time.perf_counter() - began
    return {"warm_mb": round(first / 1e6, 1), "end_mb": round(last / 1e6, 1), "ratio": round(last / first, 3), "seconds": round(seconds, 1)}


def main(options: dict[str, str]) -> dict:
    """Both measurements in a folder that is gone afterwards."""
    frames, pictures, imgsz = (int(options[name]) for name in ("frames", "pictures", "imgsz"))
    opened = open_model(options["model"])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        video = measure(make_video(place / "clip.mp4", frames), frames, place / "video", opened, imgsz)
        files = measure(make_folder(place / "pictures", pictures), pictures, place / "files", opened, imgsz)
    held = max(video["ratio"], files["ratio"]) <= MOST
    return {**options, "video": video, "folder": files, "constant": held}


if __name__ == "__main__":
    options = DEFAULTS | dict(argument.split("=", 1) for argument in sys.argv[1:])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    figures = main(options)
    print(json.dumps({"bench": "stream", "machine": platform.platform(), "commit": commit, **figures}))
    raise SystemExit(not figures["constant"])

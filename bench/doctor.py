"""Speed of `data check` on YOLO labels: `python bench/doctor.py [files=20000] [rows=8] [task=detect]` prints JSON.

Writes `files` label files of `rows` rows, and one small picture linked as often, into a temporary folder. `labels_per_s` is the label
part alone, on one core: finding the files, reading, parsing and checking every row, building the index, and all findings, with the
pictures' sizes given instead of read; `check_per_s` is all of `data check`, with the header and the end of every picture. Both are by
the CPU seconds of the process, the best of three rounds; `..._wall_s` is by the clock.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from pellucid.data import doctor
from pellucid.data.images import Header
from pellucid.data.readers import yolo
from pellucid.tasks import TASKS

SIZE = (48, 64)  # height, width
NUMBERS = {"detect": 0, "segment": 24, "pose": 12, "obb": 8}  # that follow the class id, or the box
POINTS = "kpt_shape: [4, 3]\n"


def row(draw: random.Random, task: str) -> str:
    """A row of the task, all of it inside the picture."""
    count = NUMBERS[task]
    box = [draw.uniform(0.4, 0.6), draw.uniform(0.4, 0.6), draw.uniform(0.05, 0.3), draw.uniform(0.05, 0.3)]
    if not count:
        values = box
    elif count == NUMBERS["pose"]:
        values = box + [value for _ in range(4) for value in (draw.uniform(0.3, 0.7), draw.uniform(0.3, 0.7), 2)]
    else:
        values = [draw.uniform(0.2, 0.8) for _ in range(count)]
    return f"{draw.randrange(10)} " + " ".join(f"{value:.6f}" for value in values) + "\n"


def write(root: Path, files: int, rows: int, task: str) -> Path:
    """The data set; its data.yaml."""
    for part in ("images/train", "labels/train"):
        (root / part).mkdir(parents=True)
    Image.new("RGB", SIZE[::-1]).save(root / "one.jpg")
    draw = random.Random(0)
    for number in range(files):
        os.link(root / "one.jpg", root / f"images/train/{number:06}.jpg")
        (root / f"labels/train/{number:06}.txt").write_text("".join(row(draw, task) for _ in range(rows)))
    names = ", ".join(f"kind{i}" for i in range(10))
    source = root / "data.yaml"
    source.write_text(f"train: images/train\nnames: [{names}]\n{POINTS if task == 'pose' else ''}")
    return source


def timed(work: Callable[[], doctor.Report], objects: int) -> tuple[float, float]:
    """Least CPU seconds and wall seconds of three rounds; every round must have read all objects."""
    found = []
    for _ in range(3):
        cpu, wall = time.process_time(), time.perf_counter()
        report = work()
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
        assert report.splits["train"].objects == objects, report.lines()
    return min(cpu for cpu, _ in found), min(wall for _, wall in found)


def main(files: int = 20_000, rows: int = 8, task: str = "detect") -> dict:
    needs = TASKS[task]().needs
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder), files, rows, task)
        whole, wall = timed(lambda: doctor.check(source, needs), files * rows)
        probe = yolo.probe
        yolo.probe = lambda path, log: Header(*SIZE, 1)
        try:
            labels, labels_wall = timed(lambda: doctor.check(source, needs), files * rows)
        finally:
            yolo.probe = probe
    return {
        "files": files,
        "rows": rows,
        "task": task,
        "labels_per_s": round(files / labels),
        "labels_wall_s": round(labels_wall, 2),
        "check_per_s": round(files / whole),
        "check_wall_s": round(wall, 2),
    }


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    options = {key: value if key == "task" else int(value) for key, value in given.items()}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    print(json.dumps({"bench": "doctor", "machine": platform.processor() or platform.machine(), "commit": commit, **main(**options)}))

"""The main job on pictures that ship, by the commands a user has: `python demo/run.py [--task NAME] [--short] [--out FOLDER]`.

Checks the pictures of the task, fine-tunes shipped weights on those for training, scores the result on those for validation, draws what
it finds there, and writes an ONNX file that is compared with the trained weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMON = {
    "epochs": 20,
    "batch": 8,
    "nbs": 8,  # few pictures: an update a step
    "lr0": 0.001,
    "warmup_epochs": 1,
    "warmup_bias_lr": 0.001,
    "freeze": 17,  # the heads learn, backbone and neck keep what they know
    "share_start": 0.1,  # mostly the one-to-one branch
    "close_mosaic": 5,
    "val_every": 5,
    "cache": "ram",
    "workers": 0,
}
SHORT = {"epochs": 2, "val_every": 1}  # changes with --short
THREADS = "1"  # on a busy machine two threads that wait for each other took five times as long as one
SAMPLES = Path(__file__).parents[1] / "src" / "pellucid" / "data" / "samples"


@dataclass(frozen=True)
class Job:
    """What the demo of a task does."""

    start: str  # shipped weights, never shown the validation pictures
    data: str  # a sample that ships
    pictures: str  # its validation pictures, below the sample
    objects: str  # what is found
    metric: str  # of the end-to-end path
    least: float  # what it must reach on the validation pictures
    settings: dict[str, Any]  # beside COMMON


FEW = {"imgsz": 256, "epochs": 40, "val_every": 10, "close_mosaic": 10, "flipud": 0.5}  # two training pictures: an epoch is one update
JOBS = {
    "detect": Job("trees-detect-n", "trees", "images/val", "trees", "box/ap50", 0.35, {"imgsz": 416, "flipud": 0.5}),
    "segment": Job("nuclei-segment-n", "nuclei", "val", "nuclei", "mask/ap50", 0.85, FEW),
    "pose": Job("quokka-pose-n", "quokka", "val", "quokkas", "pose/ap50", 0.9, {"imgsz": 320, "epochs": 10}),
    "obb": Job("nuclei-obb-n", "nuclei-obb", "images/val", "nuclei", "obb/ap50", 0.7, FEW | {"degrees": 180}),
}


class StepError(Exception):
    """A step that did not do what it should, in one sentence."""


def pellucid(verb: str, *words: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run a command as a user would; what it printed. Progress and complaints go to the terminal."""
    line = [*verb.split(), *words]
    print("\n$ pellucid " + " ".join(line), flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", *line], stdout=subprocess.PIPE, text=True, env={"OMP_NUM_THREADS": THREADS, **os.environ}
    )
    if done.returncode not in codes:
        raise StepError(f"expected `pellucid {verb}` to end with code {codes[0]}, got {done.returncode}; its message is above")
    return done.stdout


def words(settings: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def demo(task: str, out: Path, short: bool) -> list[str]:
    """All steps; the lines that say what was made."""
    job, common = JOBS[task], ["device=cpu", f"project={out}"]
    source = SAMPLES / job.data / job.pictures
    print(pellucid("data check", f"data={job.data}", f"task={task}", f"imgsz={job.settings['imgsz']}"), end="")

    settings = words(COMMON | job.settings | (SHORT if short else {}))
    trained = json.loads(pellucid("train", f"model={job.start}", f"data={job.data}", *settings, *common, "--json"))
    run = Path(trained["run_dir"])
    weights = run / "weights" / "best.safetensors"

    scores = json.loads(pellucid("val", f"model={weights}", f"data={job.data}", "workers=0", *common, "--json"))
    score, coarse = (scores["e2e"][name] for name in (job.metric.removesuffix("50"), job.metric))
    print(f"end-to-end path: {job.metric.split('/')[0]} AP50-95 {score:.3f}, AP50 {coarse:.3f}")
    if not coarse >= job.least:
        raise StepError(
            f"expected {job.metric} of at least {job.least} on the validation pictures, got {coarse:.3f}; see {run / 'results.csv'}"
        )

    lines = pellucid("predict", f"model={weights}", f"source={source}", "name=pictures", *common, "--json").splitlines()
    found = sum(len(json.loads(line)["objects"]) for line in lines)
    names = {path.name for path in source.iterdir()}
    drawn = [path for path in out.glob(f"{task}/pictures*/*") if path.name in names]
    pictures = sorted(drawn, key=lambda path: path.stat().st_mtime)[-len(lines) :]
    if not found or {path.name for path in pictures} != names:
        raise StepError(f"expected a drawn copy of each picture in {source} with {job.objects} found, got {len(pictures)} with {found}")
    written = json.loads(pellucid("export", f"model={weights}", f"source={source}", f"out={weights.with_suffix('.onnx')}", "--json"))
    apart = ", ".join(f"{name} {value:.2g}" for name, value in written["parity"]["largest"].items())
    suppressed = scores["nms"][job.metric]
    return [
        f"trained weights    {weights}",
        f"without torch      {written['path']} (largest differences: {apart})",
        f"curves, previews   {run}",
        f"report             {run / 'report.html'}",
        f"scores             {scores['run_dir']}",
        f"drawn pictures     {pictures[0].parent} ({len(pictures)} pictures, {found} {job.objects})",
        f"validation         {job.metric} {coarse:.3f}, AP50-95 {score:.3f} (end to end); {job.metric} {suppressed:.3f} (with suppression)",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=JOBS, default=next(iter(JOBS)), help="what is shown (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="fewer epochs, for automatic checks")
    parser.add_argument("--out", type=Path, default=Path("runs") / "demo", help="folder for all that is made (default: runs/demo)")
    given = parser.parse_args()
    began = time.perf_counter()
    try:
        lines = demo(given.task, given.out, given.short)
    except StepError as error:
        print(f"\ndemo failed: {error}", file=sys.stderr)
        return 1
    print("\nmade:", *lines, f"time               {time.perf_counter() - began:.0f} s", sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())

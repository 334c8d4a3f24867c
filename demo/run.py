"""The main job on the pictures that ship, by the commands a user has: `python demo/run.py [--short] [--out FOLDER]`.

Checks the tree tiles, fine-tunes shipped weights on the training tiles, scores the result on the validation tiles, and draws what it finds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

START = "trees-detect-n"  # shipped weights, never shown the validation tiles
DATA = "trees"
SETTINGS = {
    "epochs": 20,
    "batch": 8,
    "nbs": 8,  # 17 tiles: an update a step
    "imgsz": 416,
    "lr0": 0.001,
    "warmup_epochs": 1,
    "warmup_bias_lr": 0.001,
    "freeze": 17,  # the heads learn, backbone and neck keep what they know
    "share_start": 0.1,  # mostly the one-to-one branch
    "flipud": 0.5,  # seen from above there is no up
    "close_mosaic": 5,
    "val_every": 5,
    "cache": "ram",
    "workers": 0,
}
SHORT = {"epochs": 2, "val_every": 1}  # changes to SETTINGS with --short
LEAST_AP50 = 0.35  # on the validation tiles, end-to-end path
THREADS = "1"  # on a busy machine two threads that wait for each other took five times as long as one

TILES = Path(__file__).parents[1] / "src" / "pellucid" / "data" / "samples" / DATA / "images" / "val"


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


def demo(out: Path, short: bool) -> list[str]:
    """All steps; the lines that say what was made."""
    common = ["device=cpu", f"project={out}"]
    print(pellucid("data check", f"data={DATA}", f"imgsz={SETTINGS['imgsz']}"), end="")

    settings = words(SETTINGS | (SHORT if short else {}))
    trained = json.loads(pellucid("train", f"model={START}", f"data={DATA}", *settings, *common, "--json"))
    run = Path(trained["run_dir"])
    weights = run / "weights" / "best.safetensors"

    scores = json.loads(pellucid("val", f"model={weights}", f"data={DATA}", "workers=0", *common, "--json"))
    ap, ap50 = (scores["e2e"][f"box/{name}"] for name in ("ap", "ap50"))
    print(f"end-to-end path: AP50-95 {ap:.3f}, AP50 {ap50:.3f}")
    if not ap50 >= LEAST_AP50:
        raise StepError(f"expected box AP50 of at least {LEAST_AP50} on the validation tiles, got {ap50:.3f}; see {run / 'results.csv'}")

    lines = pellucid("predict", f"model={weights}", f"source={TILES}", "name=pictures", *common, "--json").splitlines()
    found = sum(len(json.loads(line)["objects"]) for line in lines)
    pictures = sorted(out.glob("*/pictures*/*.jpg"), key=lambda path: path.stat().st_mtime)[-len(lines) :]
    if not found or len(pictures) != len(list(TILES.iterdir())):
        raise StepError(f"expected a drawn picture of each tile in {TILES} with trees found, got {len(pictures)} with {found} trees")
    return [
        f"trained weights    {weights}",
        f"curves, previews   {run}",
        f"scores             {scores['run_dir']}",
        f"drawn pictures     {pictures[0].parent} ({len(pictures)} tiles, {found} trees)",
        f"validation tiles   AP50 {ap50:.3f}, AP50-95 {ap:.3f} (end to end); AP50 {scores['nms']['box/ap50']:.3f} (with suppression)",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer epochs, for automatic checks")
    parser.add_argument("--out", type=Path, default=Path("runs") / "demo", help="folder for all that is made (default: runs/demo)")
    given = parser.parse_args()
    began = time.perf_counter()
    try:
        lines = demo(given.out, given.short)
    except StepError as error:
        print(f"\ndemo failed: {error}", file=sys.stderr)
        return 1
    print("\nmade:", *lines, f"time               {time.perf_counter() - began:.0f} s", sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Accelerator goldens: `python goldens/bands.py [--task NAME] [--together N] [--out FOLDER]` makes them, `--check` holds a run to them.

The figure is the score of `bench/overfit.py` on a sample that ships. Training on a GPU is not the same twice, so what is frozen is a band
over at least five seeds: from the lowest less the spread to the highest plus the spread, never below the goal of the bench. The device
and the versions that made it stand beside it. Without a run there is no file.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).parent
OVERFIT = HERE.parent / "bench" / "overfit.py"
SEEDS = (0, 1, 2, 3, 4)
LEAST_SEEDS = 5
EPOCHS = {"detect": 300, "segment": 500, "pose": 150, "obb": 500}  # some 600 steps on the few pictures of a sample
TASKS = tuple(EPOCHS)


def command(task: str, seeds: Sequence[int]) -> list[str]:
    return [sys.executable, str(OVERFIT), f"task={task}", f"seeds={','.join(map(str, seeds))}", f"epochs={EPOCHS[task]}", "capture=step"]


def measure(task: str, seeds: Sequence[int]) -> dict[str, Any]:
    """What the bench prints; RuntimeError, with the end of its complaints, where it prints nothing."""
    done = subprocess.run(command(task, seeds), capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise RuntimeError(f"{task}: expected a line of JSON from bench/overfit.py, got nothing; its end: {done.stderr[-400:]}")
    return json.loads(lines[-1])


def measure_each(task: str, seeds: Sequence[int], together: int) -> dict[str, Any]:
    """As `measure` of all seeds, a process a seed, so many at once."""
    with ThreadPoolExecutor(together) as pool:
        rows = list(pool.map(lambda seed: measure(task, (seed,)), seeds))
    figures = {
        name: round(fmean(row["figures"][name] for row in rows), 4) for name, value in rows[0]["figures"].items() if value is not None
    }
    said = ",".join(row["seeds"] for row in rows)
    return {**rows[0], "seeds": said, "values": [value for row in rows for value in row["values"]], "figures": figures}


def device_and_versions() -> dict[str, Any]:
    """The accelerator and what runs on it."""
    import platform
    from importlib.metadata import version

    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    packages = {package: version(package) for package in ("torch", "torchvision", "pytorch-lightning", "numpy")}
    return {"device": name, "versions": {"python": platform.python_version(), "cuda": torch.version.cuda, **packages}}


def band(values: Sequence[float], floor: float) -> tuple[float, float, float]:
    """(tolerance, low, high); ValueError where there are too few values, or one of them is below the floor."""
    if len(values) < LEAST_SEEDS:
        raise ValueError(f"a band: expected at least {LEAST_SEEDS} seeds, got {len(values)}; run more")
    if not min(values) >= floor:
        raise ValueError(f"a band: expected every seed to reach {floor}, got {min(values)}; a golden below its floor is not frozen")
    tolerance = max(max(values) - min(values), 0.01)
    return round(tolerance, 4), round(max(min(values) - tolerance, floor), 4), round(min(max(values) + tolerance, 1.0), 4)


def freeze(measured: dict[str, Any], floor: float, machine: dict[str, Any]) -> dict[str, Any]:
    """The content of a band's file; `floor` is what no single seed may fall below."""
    tolerance, low, high = band(measured["values"], floor)
    seeds = [int(seed) for seed in str(measured["seeds"]).split(",")]
    return {
        "name": f"overfit-{measured['task']}",
        "command": f"make golden-gpu TASK={measured['task']}",
        "metric": measured["metric"],
        "seeds": seeds,
        "epochs": EPOCHS[measured["task"]],
        "values": measured["values"],
        "tolerance": tolerance,
        "floor": floor,
        "band": [low, high],
        "reason": "the spread over seeds is what unchanged arithmetic does; below the floor the task is not learned",
        "figures": measured["figures"],
        **machine,
    }


def floor_of(goal: float) -> float:
    """What one seed must reach: 90 % of the bench's goal, which is one for the mean."""
    return round(0.9 * goal, 4)


def verdict(value: float, golden: dict[str, Any]) -> str:
    """ "" where a new run lies in the band, else what is wrong; a better one than ever is no defect."""
    low, high = golden["band"]
    if math.isnan(value) or value < low:
        return f"{golden['name']}: expected {golden['metric']} in [{low}, {high}], got {value}"
    return ""


def path_of(task: str, folder: Path) -> Path:
    return folder / f"overfit-{task}.json"


def check(task: str, folder: Path) -> int:
    """Hold one run of the first seed against the band; 0 in it, 1 not, 5 where no band has been made (as pytest says of no tests)."""
    if not path_of(task, folder).is_file():
        print(f"overfit-{task}: no band has been made; make golden-gpu TASK={task}")
        return 5
    golden = json.loads(path_of(task, folder).read_text(encoding="utf-8"))
    if golden["epochs"] != EPOCHS[task]:
        print(f"overfit-{task}: expected a band of {EPOCHS[task]} epochs, got one of {golden['epochs']}; make golden-gpu TASK={task}")
        return 1
    value = measure(task, SEEDS[:1])["values"][0]
    said = verdict(value, golden)
    print(said or f"overfit-{task}: {golden['metric']} {value} in {golden['band']}")
    return int(bool(said))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=TASKS, help="one task alone (default: all)")
    parser.add_argument("--together", type=int, default=1, help="seeds at once (default: 1)")
    parser.add_argument("--out", type=Path, default=HERE / "gpu", help="where the bands lie (default: goldens/gpu)")
    parser.add_argument("--check", action="store_true", help="compare with the bands that are there")
    given = parser.parse_args(words)
    if given.together < 1:
        parser.error(f"--together: expected at least 1, got {given.together}")
    tasks = [given.task] if given.task else list(TASKS)
    if given.check:
        codes = {check(task, given.out) for task in tasks}
        return next(code for code in (1, 5, 0) if code in codes)
    machine = device_and_versions()
    if machine["device"] == "none":
        print("expected an accelerator to make its goldens, got none on this machine; nothing was written", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        measured = measure_each(task, SEEDS, given.together)
        frozen = freeze(measured, floor_of(measured["goal"]), machine)
        path_of(task, given.out).write_text(json.dumps(frozen, indent=1) + "\n", encoding="utf-8")
        print(f"{path_of(task, given.out)}: {frozen['metric']} {frozen['values']}, band {frozen['band']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

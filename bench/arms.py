"""Arms of an ablation, one training each: `python bench/arms.py arms="; semantic=0; mask=3 box=5" [seeds=0,1] [together=2] key=value ...`.

An arm is settings of `pellucid train` that are added to all others, an empty one the default; so `precision=16; precision=bf16` compares
arithmetic. Prints a table of the first score of both paths on stderr, and JSON on stdout; exit code 1 where a training failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OWN = {"arms": "", "seeds": "0", "together": "2"}
TRAIN = {"plots": "false", "cache": "ram", "json": "true", "exist_ok": "true"}


def run(arm: str, seed: str, settings: dict[str, str], folder: Path, number: int) -> dict:
    """What one training says at its end, or the end of its complaints."""
    given = {**TRAIN, **settings, "seed": seed, "project": str(folder), "name": f"{number}-{seed}"}
    given |= dict(word.split("=", 1) for word in arm.split())
    words = [sys.executable, "-m", "pellucid", "train", *(f"{key}={value}" for key, value in given.items())]
    began = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    row = {"arm": arm or "default", "seed": int(seed), "wall_s": round(time.perf_counter() - began, 1)}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {**row, "failed": done.stderr.strip()[-400:]}
    told = json.loads(lines[-1])
    scores = {
        path: {k: v for k, v in part.items() if isinstance(v, float)} for path, part in told["scores"].items() if path in ("e2e", "nms")
    }
    return {**row, "scores": scores, "images_per_s": told["images_per_s"]}


def table(rows: Sequence[dict]) -> str:
    """A line an arm: the first score of each path, seed after seed."""
    metric = next((key for row in rows if "scores" in row for key in row["scores"]["e2e"]), "score")
    lines = [f"| arm | end to end {metric} | with suppression |", "| --- | --- | --- |"]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == arm]
        cells = [", ".join(f"{row['scores'][path][metric]:.3f}" if "scores" in row else "failed" for row in own) for path in ("e2e", "nms")]
        lines.append(f"| {arm if arm == 'default' else f'`{arm}`'} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    given = dict(word.split("=", 1) for word in words)
    own = {key: given.pop(key, value) for key, value in OWN.items()}
    arms = [arm.strip() for arm in own["arms"].split(";")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(int(own["together"])) as pool:
        cases = [(arm, seed, number) for seed in own["seeds"].split(",") for number, arm in enumerate(arms)]
        futures = [pool.submit(run, arm, seed, given, Path(folder), number) for arm, seed, number in cases]
        rows = []
        for future in futures:
            rows.append(future.result())
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(table(rows), file=sys.stderr)
    print(json.dumps({"bench": "arms", **own, **given, "rows": rows}))
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The green gate of an accelerator: `python goldens/gate.py [--part K] [--together N] [--out FOLDER] [--plan]`.

GPU tests come first, long files in several steps, and end the gate where one fails; then the GPU goldens; then the notebooks in full. The
steps are cut into parts of at most nine minutes, the same cut for as many devices; with `--together` so many steps run at once, and parts
are fewer. One table says what passed, what was skipped and why, and how long it took. The results of all parts on the same sources, devices
and versions gather in one file, which says whether the whole is green.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

from bands import TASKS, device_and_versions  # noqa: E402

PART_SECONDS = 540  # what one part may take
PLANNED_SECONDS = 420  # what its steps are expected to take
EXPECTED = {"tests": 20, "golden": 60, "notebook": 45}  # seconds of a step
SECONDS = {
    "tests/gpu/test_tasks.py": 130,
    "tests/gpu/test_noise.py": 90,
    "tests/gpu/test_capture.py": 200,
    "tests/gpu/test_replay.py": 300,
    "notebooks/development_gates.py": 200,
}  # of steps that take more
OF_SEVERAL = {"tests/gpu/test_ranks.py": 150, "tests/gpu/test_capture.py": 250}  # where there are several accelerators
TASKS_AND_REST = (*TASKS, f"not ({' or '.join(TASKS)})")
BY_NAME = {  # long files, in several steps by the names of their tests
    "tests/gpu/test_noise.py": TASKS_AND_REST,
    "tests/gpu/test_tasks.py": TASKS_AND_REST,
    "tests/gpu/test_replay.py": TASKS,
    "tests/gpu/test_capture.py": ("caught", "not caught"),
}
NOTEBOOKS = ("demo_detect", "demo_segment", "demo_keypoints", "demo_obb", "development_gates")
NO_TESTS = 5  # pytest's exit code, and that of a golden that has not been made
SOURCES = ("src", "tests", "goldens", "notebooks", "bench", "pyproject.toml")
LEFT_OUT = ("__pycache__", ".egg-info", "goldens/gpu/runs")  # of them
ONE_DEVICE = "one CUDA device on this machine"  # the one reason for which all tests of a step may be skipped


@dataclass(frozen=True)
class Step:
    """One process of the gate."""

    kind: str  # tests, golden or notebook
    name: str
    words: tuple[str, ...]  # after the interpreter

    @property
    def expected(self) -> int:
        path = self.name.partition(" ")[0]
        known = SECONDS | OF_SEVERAL if len(devices()) > 1 else SECONDS
        return known.get(path, EXPECTED[self.kind]) // len(BY_NAME.get(path, ("all",)))


@dataclass
class Outcome:
    """What became of a step."""

    name: str
    kind: str
    status: str  # passed, failed, skipped
    passed: int = 0
    failed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # reason -> how often
    seconds: float = 0.0
    said: str = ""  # the end of what it printed


def gpu_test_files(root: Path = ROOT) -> list[str]:
    """Files with tests of the GPU: those among other tests first, since they are small."""
    found = [path.relative_to(root) for path in (root / "tests").rglob("test_*.py") if _marks_gpu(path)]
    return [str(path) for path in sorted(found, key=lambda path: (path.parts[1] == "gpu", SECONDS.get(str(path), 0), str(path)))]


def _marks_gpu(path: Path) -> bool:
    """Whether the code, not a string in it, names the mark."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return any(isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.gpu" for node in nodes)


def all_steps(root: Path = ROOT) -> list[Step]:
    tests = [step for path in gpu_test_files(root) for step in tests_of(path)]
    goldens = [Step("golden", f"overfit-{task}", ("goldens/bands.py", "--check", "--task", task)) for task in TASKS]
    return [*tests, *goldens, *(Step("notebook", f"notebooks/{name}.py", (f"notebooks/{name}.py",)) for name in NOTEBOOKS)]


def tests_of(path: str) -> list[Step]:
    """A file of tests, in as many steps as `BY_NAME` says."""
    words = ("-m", "pytest", "-q", "-x", "-m", "gpu", path)
    if path not in BY_NAME:
        return [Step("tests", path, words)]
    return [Step("tests", f"{path} -k {chosen}", (*words, "-k", chosen)) for chosen in BY_NAME[path]]


def cut(steps: Iterable[Step], together: int = 1) -> list[list[Step]]:
    """The steps in their order, in parts whose expected time fits; two at once are expected to take as long as one after the other."""
    parts: list[list[Step]] = [[]]
    for step in steps:
        if parts[-1] and sum(each.expected for each in parts[-1]) + step.expected > PLANNED_SECONDS * max(together / 2, 1):
            parts.append([])
        parts[-1].append(step)
    return parts


def devices() -> list[str]:
    """The accelerators that may be used, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count, own = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return own.split(",")[:count] if own else [str(number) for number in range(count)]


def devices_from(first: int) -> dict[str, str]:
    """The variable that names them all, so many places further; nothing where there is but one."""
    found = devices()
    first %= max(len(found), 1)
    return {"CUDA_VISIBLE_DEVICES": ",".join(found[first:] + found[:first])} if len(found) > 1 else {}


def run_step(step: Step, seconds: float, folder: Path, root: Path = ROOT, first: int = 0) -> Outcome:
    """Run one step within so many seconds, on the accelerator `first`; others come after it."""
    report = folder / f"junit-{re.sub(r'[^A-Za-z0-9_.]+', '-', step.name)}.xml"
    report.unlink(missing_ok=True)
    words = [sys.executable, *step.words, *([f"--junitxml={report}"] if step.kind == "tests" else [])]
    environment = os.environ | devices_from(first) | ({"PELLUCID_FULL": "1"} if step.kind == "notebook" else {})
    began = time.perf_counter()
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    with subprocess.Popen(words, cwd=root, env=environment, **how) as process:
        try:
            said = process.communicate(timeout=max(seconds, 1))[0]
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children too
            said = f"{process.communicate()[0]}\nended after {seconds:.0f} s, the time that the part had left"
            code = 124
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    taken = round(time.perf_counter() - began, 1)
    if report.is_file():
        outcome = read_report(step, report, code, taken, said[-2000:])
        report.unlink()
        return outcome
    status = {0: "passed", NO_TESTS: "skipped"}.get(code, "failed")
    reason = {said.strip().splitlines()[-1]: 1} if status == "skipped" and said.strip() else {}
    return Outcome(step.name, step.kind, status, int(status == "passed"), int(status == "failed"), reason, taken, said[-2000:])


def read_report(step: Step, report: Path, code: int, seconds: float, said: str) -> Outcome:
    """Counts and reasons from pytest's own report; where every test was skipped so is the step, where there was none it failed."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    reasons = Counter(str(skip.get("message", "")) for case in cases if (skip := case.find("skipped")) is not None)
    passed = len(cases) - failed - reasons.total()
    status = "failed" if failed or code or not cases else "passed" if passed else "skipped"
    return Outcome(step.name, step.kind, status, passed, failed or int(status == "failed"), dict(reasons), seconds, said)


def run_part(steps: Sequence[Step], folder: Path, root: Path = ROOT, together: int = 1) -> list[Outcome]:
    """The outcomes of all steps, or of those begun before a test failed; all tests end before a golden or a notebook begins."""
    ends, outcomes = time.perf_counter() + PART_SECONDS, []

    def failed() -> bool:
        return any(outcome.kind == "tests" and outcome.status == "failed" for outcome in outcomes)

    def run(number: int, step: Step) -> None:
        if not failed():
            outcomes.append(outcome := run_step(step, ends - time.perf_counter(), folder, root, number))
            print(f"{outcome.status:8} {outcome.seconds:7.1f} s  {step.name}", file=sys.stderr, flush=True)

    for tests in (True, False):
        chosen = [step for step in steps if (step.kind == "tests") == tests]
        with ThreadPoolExecutor(together) as pool:
            list(pool.map(run, count(), sorted(chosen, key=lambda step: -step.expected) if together > 1 else chosen))
    return sorted(outcomes, key=lambda outcome: [step.name for step in steps].index(outcome.name))


def table(outcomes: Sequence[Outcome]) -> str:
    """One line a step, the sums, and the reasons of what was skipped."""
    width = max(len(outcome.name) for outcome in outcomes)
    head = f"{'':{width}}  passed  failed  skipped  seconds"
    rows = [(o.name, o.passed, o.failed, sum(o.skipped.values()), o.seconds) for o in outcomes]
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, 5))))
    lines = [f"{name:{width}}  {passed:6}  {failed:6}  {skipped:7}  {seconds:7.1f}" for name, passed, failed, skipped, seconds in rows]
    reasons: Counter[str] = Counter()
    for outcome in outcomes:
        reasons.update(outcome.skipped)
    return "\n".join([head, *lines, *(f"skipped {count}: {reason}" for reason, count in sorted(reasons.items()))])


def digest(root: Path = ROOT) -> str:
    """Of all that the gate runs and reads, so that parts of different trees never make one green."""
    whole = hashlib.sha256()
    found = [path for name in SOURCES for path in ((root / name).rglob("*") if (root / name).is_dir() else [root / name])]
    for path in sorted(found):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not any(part in name for part in LEFT_OUT):
            whole.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


def merged(
    old: dict[str, Any] | None, outcomes: Sequence[Outcome], steps: Sequence[Step], machine: dict[str, Any], tree: str
) -> dict[str, Any]:
    """The results file: earlier outcomes of the same tree and machine stay, those of these steps are replaced."""
    same = old is not None and old["tree"] == tree and all(old[key] == machine[key] for key in machine)
    kept = {row["name"]: row for row in (old or {"steps": []})["steps"]} if same else {}
    kept |= {outcome.name: asdict(outcome) for outcome in outcomes}
    rows = [kept[step.name] for step in steps if step.name in kept]
    sums = {key: sum(row[key] for row in rows) for key in ("passed", "failed", "seconds")}
    skipped: Counter[str] = Counter()
    for row in rows:
        skipped.update(row["skipped"])
    green = len(rows) == len(steps) and not sums["failed"] and all(_good(row) for row in rows)
    missing = [step.name for step in steps if step.name not in kept]
    head = {"gate": "gpu", **machine, "tree": tree, "green": green, **sums, "skipped": dict(skipped), "missing": missing}
    return {**head, "seconds": round(sums["seconds"], 1), "steps": rows}


def _good(row: dict[str, Any]) -> bool:
    """Whether a step did what it is for; all of its tests may be skipped on one device alone."""
    return row["status"] == "passed" or (row["kind"] == "tests" and row["status"] == "skipped" and set(row["skipped"]) == {ONE_DEVICE})


def results_path(machine: dict[str, Any], folder: Path) -> Path:
    words = f"gate {machine['device']} torch {machine['versions']['torch'].split('+')[0]}"
    return folder / (re.sub(r"[^\w.]+", "-", words).lower() + ".json")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", type=int, help="run this part alone, counted from 1")
    parser.add_argument("--together", type=int, default=1, help="steps that run at once, in fewer parts (default: 1)")
    parser.add_argument("--plan", action="store_true", help="say what the parts are, and run nothing")
    parser.add_argument("--out", type=Path, help="write the results file here too, as $OUT of a lent machine")
    given = parser.parse_args(words)
    if given.together < 1:
        parser.error(f"--together: expected at least 1, got {given.together}")
    steps = all_steps()
    parts = cut(steps, given.together)
    if given.part is not None and not 1 <= given.part <= len(parts):
        parser.error(f"--part: expected 1 to {len(parts)}, got {given.part}")
    chosen = parts if given.part is None else [parts[given.part - 1]]
    if given.plan:
        for number, part in enumerate(chosen, given.part or 1):
            print(f"part {number}: about {sum(step.expected for step in part)} s", *(f"  {step.name}" for step in part), sep="\n")
        return 0
    machine = {**device_and_versions(), "devices": len(devices())}
    if machine["device"] == "none":
        print("make gate-gpu: expected an accelerator, got none on this machine; every GPU test would be skipped, nothing was run")
        return 1
    return gate(chosen, steps, machine, given.out, given.together)


def gate(parts: Sequence[Sequence[Step]], steps: Sequence[Step], machine: dict[str, Any], out: Path | None, together: int = 1) -> int:
    """Run the parts, print the table, write the results; 0 where nothing failed."""
    runs, tree = HERE / "gpu" / "runs", digest()
    for folder in (runs, *([out] if out else [])):
        folder.mkdir(parents=True, exist_ok=True)
    path, outcomes = results_path(machine, runs), []
    for part in parts:
        outcomes += run_part(part, runs, together=together)
        if any(outcome.status == "failed" for outcome in outcomes):
            break
    print(table(outcomes))
    for outcome in outcomes:
        if outcome.status == "failed":
            print(f"\n{outcome.name}:\n{outcome.said}")
    if digest() != tree:
        print("expected sources that stay as they are while the gate runs, but they changed; nothing was written, run it again")
        return 1
    old = json.loads(path.read_text("utf-8")) if path.is_file() else None
    results = merged(old, outcomes, steps, machine, tree)
    for target in (path, *([out / path.name] if out else [])):
        target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {'green' if results['green'] else 'not yet green'}, {len(results['missing'])} steps not run")
    return int(any(outcome.status == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

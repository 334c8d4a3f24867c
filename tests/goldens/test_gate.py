"""The gate of the accelerator: its steps, its parts, what it counts, when it is green; and the bands of its goldens."""

import importlib
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from pellucid.tasks import TASKS
from tests.conftest import NO_ACCELERATOR

from .conftest import ROOT

MACHINE = {"device": "NVIDIA H200", "versions": {"torch": "2.11.0+cu130", "python": "3.12.3"}}


@pytest.fixture(scope="module")
def gate(make):
    sys.path.insert(0, str(ROOT / "goldens"))
    try:
        return importlib.import_module("gate")
    finally:
        sys.path.remove(str(ROOT / "goldens"))


@pytest.fixture(scope="module")
def bands(gate):
    return sys.modules["bands"]


@pytest.fixture
def tree(tmp_path):
    """A small repository: a passing and a skipped test of the GPU, a failing one, and a notebook that tells its form."""
    (tmp_path / "tests" / "gpu").mkdir(parents=True)
    head = "import pytest\n\n@pytest.mark.gpu\n"
    two = "@pytest.mark.gpu\ndef test_two(): pytest.skip('needs two devices')\n"
    (tmp_path / "tests" / "test_small.py").write_text(f"{head}def test_one(): pass\n\n{two}\ndef test_other(): raise ValueError\n")
    (tmp_path / "tests" / "gpu" / "test_red.py").write_text(f"{head}def test_red(): assert 1 == 2\n")
    (tmp_path / "tests" / "test_none.py").write_text("def test_none(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    (tmp_path / "full.py").write_text("import os\nprint('full' if os.environ.get('PELLUCID_FULL') == '1' else 'fast')\n")
    return tmp_path


def step(gate, path):
    return gate.Step("tests", path, ("-m", "pytest", "-q", "-x", "-m", "gpu", path))


def test_small_tests_come_first_and_all_of_them_come(gate, tree):
    assert gate.gpu_test_files(tree) == ["tests/test_small.py", "tests/gpu/test_red.py"]
    found = gate.gpu_test_files()
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "gpu").glob("test_*.py")} < set(found)
    assert "tests/decode/test_decode.py" in found[:3]
    assert "tests/goldens/test_gate.py" not in found  # it names the mark in strings alone


def test_steps_are_tests_then_goldens_then_notebooks(gate):
    steps = gate.all_steps()
    kinds = [each.kind for each in steps]
    assert kinds == sorted(kinds, key=["tests", "golden", "notebook"].index)
    assert [each.name for each in steps if each.kind == "golden"] == [f"overfit-{task}" for task in TASKS]
    assert all((ROOT / each.name.partition(" ")[0]).is_file() for each in steps if each.kind != "golden")
    assert len([each for each in steps if each.kind == "notebook"]) == 5


def chooses(words: str, test: str) -> bool:
    """Whether `pytest -k words` takes a test."""
    return eval(re.sub(r"\b(?!(?:not|or|and)\b)\w+", lambda word: str(word[0] in test), words))


def test_a_long_file_is_several_steps_that_miss_no_test(gate):
    words = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--collect-only", *gate.BY_NAME]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    for path, parts in gate.BY_NAME.items():
        steps = [each for each in gate.all_steps() if each.name.startswith(path)]
        assert [each.words[-2:] for each in steps] == [("-k", part) for part in parts]
        found = [line for line in done.stdout.splitlines() if line.startswith(f"{path}::")]
        assert len(found) > 10
        taken = [[part for part in parts if chooses(part, test)] for test in found]
        assert all(len(by) == 1 for by in taken)
        assert {by[0] for by in taken} == set(parts)


def test_steps_take_turns_with_the_devices(gate, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    found = [gate.devices_from(number)["CUDA_VISIBLE_DEVICES"] for number in range(3)]
    assert found == ["3,5", "5,3", "3,5"]
    ranks = step(gate, "tests/gpu/test_ranks.py")
    of_two = ranks.expected
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,-1,5")  # what comes after a wrong one does not count
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert gate.devices_from(1) == {}
    assert of_two > ranks.expected  # skipped


def test_parts_hold_every_step_once_and_fit(gate):
    steps = gate.all_steps()
    parts = gate.cut(steps)
    assert [each for part in parts for each in part] == steps
    assert 1 < len(parts) <= 4
    assert all(sum(each.expected for each in part) <= gate.PLANNED_SECONDS < gate.PART_SECONDS <= 9 * 60 for part in parts)
    assert sum(each.expected for each in steps) < 25 * 60


def test_a_step_is_counted_with_its_reasons(gate, tree, tmp_path):
    outcome = gate.run_step(step(gate, "tests/test_small.py"), 60, tmp_path, tree)
    assert (outcome.status, outcome.passed, outcome.failed) == ("passed", 1, 0)
    assert list(outcome.skipped.values()) == [1]
    assert "needs two devices" in next(iter(outcome.skipped))


def test_a_step_that_chooses_no_test_has_failed(gate, tree, tmp_path):
    nothing = gate.Step("tests", "tests/test_small.py -k nothing", (*step(gate, "tests/test_small.py").words, "-k", "nothing"))
    assert gate.run_step(nothing, 60, tmp_path, tree).status == "failed"


def test_sources_that_change_meanwhile_are_not_filed(gate, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gate, "HERE", tmp_path)
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    tree = iter(["before", "after"])
    monkeypatch.setattr(gate, "digest", lambda: next(tree))
    steps = gate.all_steps(ROOT)[:1]
    monkeypatch.setattr(gate, "run_part", lambda part, folder, together: outcomes(gate, part))
    assert gate.gate([steps], steps, MACHINE, tmp_path / "new" / "out") == 1
    assert "they changed; nothing was written" in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.json"))


def test_all_that_is_read_is_in_the_digest(gate, tree):
    (tree / "goldens" / "gpu" / "runs").mkdir(parents=True)
    (tree / "src").mkdir()
    seen = {gate.digest(tree)}
    for name in ("src/weights.safetensors", "goldens/gpu/overfit-detect.json", "pyproject.toml", "tests/gpu/test_new.py"):
        (tree / name).write_text(name)
        seen.add(gate.digest(tree))
    assert len(seen) == 5
    (tree / "goldens" / "gpu" / "runs" / "gate.json").write_text("{}")
    (tree / "src" / "__pycache__").mkdir()
    (tree / "src" / "__pycache__" / "a.pyc").write_text("")
    assert gate.digest(tree) in seen


def test_a_failed_test_ends_the_part(gate, tree, tmp_path, capsys):
    steps = [step(gate, "tests/gpu/test_red.py"), step(gate, "tests/test_small.py")]
    (outcome,) = gate.run_part(steps, tmp_path, tree)
    assert (outcome.status, outcome.failed) == ("failed", 1)
    assert "assert 1 == 2" in outcome.said
    assert "tests/gpu/test_red.py" in gate.table([outcome])


def test_steps_run_at_once_and_tests_end_first(gate, tree):
    for name, other in ("ab", "ba"):  # each waits for the other to have begun
        begin = f"from pathlib import Path\nfrom time import sleep\nPath('began-{name}').touch()\n"
        (tree / f"{name}.py").write_text(f"{begin}while not Path('began-{other}').exists(): sleep(0.05)\n")
    notebooks = [gate.Step("notebook", f"{name}.py", (f"{name}.py",)) for name in ("b", "a")]
    small = step(gate, "tests/test_small.py")
    found = gate.run_part([*notebooks, small], tree, tree, together=2)
    assert [(outcome.name, outcome.status) for outcome in found] == [
        ("b.py", "passed"),
        ("a.py", "passed"),
        ("tests/test_small.py", "passed"),
    ]
    red = step(gate, "tests/gpu/test_red.py")
    assert [outcome.name for outcome in gate.run_part([red, *notebooks], tree, tree, together=2)] == [red.name]
    assert not list(tree.glob("*.xml"))


def test_more_at_once_is_fewer_parts(gate):
    with pytest.raises(SystemExit):
        gate.main(["--plan", "--together", "0"])
    steps = gate.all_steps()
    assert len(gate.cut(steps, 6)) < len(gate.cut(steps))
    assert [each for part in gate.cut(steps, 6) for each in part] == steps


def test_notebooks_run_in_full_and_a_late_one_is_ended(gate, tree, tmp_path):
    full = gate.run_step(gate.Step("notebook", "full.py", ("full.py",)), 60, tmp_path, tree)
    assert (full.status, full.said.strip()) == ("passed", "full")
    (tree / "full.py").write_text("import time\ntime.sleep(60)\n")
    late = gate.run_step(gate.Step("notebook", "full.py", ("full.py",)), 1, tmp_path, tree)
    assert late.status == "failed"
    assert "ended after 1 s" in late.said


def outcomes(gate, steps, **changes):
    return [replace(gate.Outcome(each.name, each.kind, "passed", 1, seconds=2.0), **changes) for each in steps]


def test_parts_gather_in_one_file_and_become_green_together(gate):
    steps = gate.all_steps()
    first = gate.merged(None, outcomes(gate, steps[:3]), steps, MACHINE, "a")
    assert not first["green"]
    assert len(first["missing"]) == len(steps) - 3
    whole = gate.merged(first, outcomes(gate, steps[3:]), steps, MACHINE, "a")
    assert whole["green"]
    assert (whole["passed"], whole["missing"], whole["device"]) == (len(steps), [], "NVIDIA H200")
    assert not gate.merged(first, outcomes(gate, steps[3:]), steps, MACHINE, "other sources")["green"]
    assert not gate.merged(first, outcomes(gate, steps[3:]), steps, {**MACHINE, "device": "other"}, "a")["green"]


@pytest.mark.parametrize(
    ("kind", "status", "why", "green"),
    [
        ("tests", "failed", {}, False),
        ("tests", "skipped", {"one CUDA device on this machine": 3}, True),
        ("tests", "skipped", {"one CUDA device on this machine": 3, NO_ACCELERATOR: 1}, False),
        ("tests", "skipped", {}, False),
        ("golden", "skipped", {}, False),
    ],
)
def test_what_is_not_green(gate, kind, status, why, green):
    steps = gate.all_steps()
    rows = outcomes(gate, steps)
    place = next(i for i, each in enumerate(steps) if each.kind == kind)
    rows[place] = replace(rows[place], status=status, passed=0, failed=int(status == "failed"), skipped=why)
    found = gate.merged(None, rows, steps, MACHINE, "a")
    assert found["green"] == green
    assert found["skipped"] == why
    assert all(f"skipped {count}: {reason}" in gate.table(rows) for reason, count in why.items())


def test_without_an_accelerator_nothing_is_written(gate, monkeypatch, capsys):
    monkeypatch.setattr(gate, "device_and_versions", lambda: {"device": "none", "versions": {}})
    monkeypatch.setattr(gate, "gate", lambda *_: pytest.fail("nothing is run"))
    assert gate.main([]) == 1
    assert "expected an accelerator, got none" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        gate.main(["--part", "9"])


def test_the_gate_writes_its_table_and_its_file(gate, tree, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gate, "HERE", tmp_path)
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    steps = gate.all_steps()
    monkeypatch.setattr(gate, "run_part", lambda part, folder, together: outcomes(gate, part))
    out = tmp_path / "out"
    out.mkdir()
    assert gate.gate(gate.cut(steps), steps, MACHINE, out) == 0
    said = capsys.readouterr().out
    assert "gate-nvidia-h200-torch-2.11.0.json: green, 0 steps not run" in said
    (copy,) = out.iterdir()
    assert json.loads(copy.read_text())["green"]
    assert json.loads((tmp_path / "gpu" / "runs" / copy.name).read_text())["steps"]


def test_gpu_tests_are_collected_without_shapely_and_skipped_for_one_reason(tmp_path):
    (tmp_path / "shapely.py").write_text("raise ModuleNotFoundError('shapely')\n")
    report = tmp_path / "junit.xml"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={report}", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    assert len(cases) > 30
    assert {case.find("skipped").get("message") for case in cases} == {NO_ACCELERATOR}


def test_a_band_needs_five_seeds_above_the_floor(bands):
    tolerance, low, high = bands.band([0.9, 0.94, 0.92, 0.9, 0.93], 0.8)
    assert (tolerance, low, high) == (0.04, 0.86, 0.98)
    assert bands.band([0.81, 0.95, 0.9, 0.9, 0.9], 0.8)[1:] == (0.8, 1.0)  # the tolerance never crosses the floor
    with pytest.raises(ValueError, match="at least 5 seeds, got 4"):
        bands.band([0.9] * 4, 0.8)
    with pytest.raises(ValueError, match=r"every seed to reach 0\.8, got 0\.79"):
        bands.band([0.9, 0.9, 0.9, 0.9, 0.79], 0.8)


def measured(values):
    return {"task": "pose", "metric": "pose/ap", "values": values, "seeds": "0,1,2,3,4", "goal": 0.6, "figures": {"pose/ap": 0.7}}


def test_a_band_says_what_made_it(bands):
    frozen = bands.freeze(measured([0.7, 0.71, 0.72, 0.7, 0.73]), bands.floor_of(0.6), MACHINE)
    assert frozen["seeds"] == [0, 1, 2, 3, 4]
    assert frozen["floor"] == 0.54
    assert (frozen["device"], frozen["versions"]) == (MACHINE["device"], MACHINE["versions"])
    assert bands.verdict(0.7, frozen) == bands.verdict(0.9, frozen) == ""
    assert "expected pose/ap in [0.67, 0.76], got 0.5" in bands.verdict(0.5, frozen)
    assert bands.verdict(math.nan, frozen)


def test_goldens_of_the_accelerator_are_made_and_checked(bands, tmp_path, monkeypatch, capsys):
    assert bands.main(["--check", "--task", "pose", "--out", str(tmp_path)]) == 5
    assert "no band has been made" in capsys.readouterr().out
    monkeypatch.setattr(bands, "device_and_versions", lambda: {"device": "none"})
    assert bands.main(["--task", "pose", "--out", str(tmp_path)]) == 1
    monkeypatch.setattr(bands, "device_and_versions", lambda: MACHINE)
    known = [0.7, 0.71, 0.72, 0.7, 0.73]
    monkeypatch.setattr(bands, "measure", lambda task, seeds: measured([known[seed] for seed in seeds]) | {"seeds": str(*seeds)})
    assert bands.main(["--task", "pose", "--together", "3", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "overfit-pose.json").read_text())["values"] == known
    assert bands.main(["--check", "--task", "pose", "--out", str(tmp_path)]) == 0
    monkeypatch.setattr(bands, "measure", lambda task, seeds: measured([0.5]))
    assert bands.main(["--check", "--task", "pose", "--out", str(tmp_path)]) == 1


def test_bands_that_are_there_came_from_an_accelerator(bands):
    for path in (ROOT / "goldens" / "gpu").glob("overfit-*.json"):
        frozen = json.loads(path.read_text())
        assert len(frozen["seeds"]) == len(frozen["values"]) >= 5
        assert frozen["device"] != "none"
        assert frozen["band"] == list(bands.band(frozen["values"], frozen["floor"])[1:])


def test_bands_name_every_task_and_settings_of_the_bench(bands):
    assert set(bands.TASKS) == set(TASKS)
    assert bands.command("obb", (0, 1))[1:] == [str(ROOT / "bench" / "overfit.py"), "task=obb", "seeds=0,1", "epochs=500", "capture=step"]

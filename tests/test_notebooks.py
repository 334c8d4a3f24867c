"""Every notebook runs as a plain script in its fast form, on the pictures that ship, and says what it is for jupytext."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.data.samples import NAMES
from pellucid.tasks import TASKS
from pellucid.zoo import shipped_names

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
WRITTEN = {  # below PELLUCID_OUT
    "demo_detect": ("detect/labels.jpg", "detect/found/*.jpg", "detect/detect/train/weights/best.safetensors"),
    "demo_segment": ("segment/labels.jpg", "segment/found/*.png", "segment/segment/train/weights/best.safetensors"),
    "demo_keypoints": ("pose/labels.jpg", "pose/found/*.jpg", "pose/pose/train/weights/best.safetensors"),
    "demo_obb": ("obb/labels.jpg", "obb/found/*.png", "obb/obb/train/weights/best.safetensors"),
    "development_gates": ("gates/floor.png",),
}


def test_all_are_here():
    assert {path.stem for path in NOTEBOOKS} == set(WRITTEN)
    assert len(WRITTEN) == len(TASKS) + 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_in_percent_format_short_and_explained(path):
    text = path.read_text()
    assert text.startswith("# ---\n# jupyter:\n#   jupytext:\n")
    assert "format_name: percent" in text
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)[1:]
    explained = [cell for cell in cells if cell.startswith(" [markdown]")]
    assert len(explained) >= 5
    assert all(line.startswith("#") or not line for cell in explained for line in cell.splitlines()[1:])
    assert len(text.splitlines()) < 180
    ast.parse(text)  # no magics


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_starts_from_what_ships_and_can_be_given_another_set(path):
    text = path.read_text()
    words = set(re.findall(r'"([\w-]+)"', text))
    assert words & set(NAMES)
    assert path.stem == "development_gates" or len(words & set(shipped_names())) == 1
    assert "PELLUCID_DATA" in text
    assert "PELLUCID_FULL" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_in_its_fast_form(path, tmp_path):
    own = {name: value for name, value in os.environ.items() if not name.startswith("PELLUCID_")}
    environment = {**own, "PELLUCID_OUT": str(tmp_path), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) > 5
    for pattern in WRITTEN[path.stem]:
        assert list(tmp_path.glob(pattern)), pattern


def test_another_set_takes_the_place_of_the_sample(tmp_path):
    """The folder of a sample stands for a user's own: the figures of the sample are then no longer asked for."""
    data = ROOT / "src" / "pellucid" / "data" / "samples" / "nuclei-obb" / "data.yaml"
    environment = {
        **os.environ,
        "PELLUCID_OUT": str(tmp_path),
        "PELLUCID_DATA": str(data),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    text = (ROOT / "notebooks" / "demo_obb.py").read_text().replace("LEAST = ", "LEAST = 2 + ")
    assert "LEAST = 2 + " in text
    (tmp_path / "own.py").write_text(text)
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

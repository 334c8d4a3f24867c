"""The kernels of the mask losses, without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pellucid.losses import mask_blocks, masks

pytest.importorskip("triton", reason="needs triton")


def test_interpreted_kernels_agree_with_the_blocks():
    script = Path(__file__).parent / "interpreted.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == "kernels agree\n", done.stderr[-2000:]


def test_the_cpu_and_double_precision_use_blocks():
    assert masks._backend(torch.zeros(1)) is mask_blocks
    assert masks._backend(torch.zeros(1, dtype=torch.float64)) is mask_blocks

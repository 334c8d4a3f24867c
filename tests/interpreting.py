"""Triton kernels without a GPU, interpreted."""

import os
import subprocess
import sys
from pathlib import Path


def kernels_agree(folder: Path) -> None:
    """Run `interpreted.py` of a folder in a process of its own, since TRITON_INTERPRET must be set before triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-W", "ignore", str(folder / "interpreted.py")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "kernels agree\n", done.stderr[-2000:]

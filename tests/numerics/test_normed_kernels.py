"""The kernel of BatchNorm and SiLU, without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pellucid.numerics import normed

pytest.importorskip("triton", reason="needs triton")


def test_the_interpreted_kernel_agrees_with_the_formula():
    script = Path(__file__).parent / "interpreted.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == "kernels agree\n", done.stderr[-2000:]


@pytest.mark.parametrize(("dtype", "layout"), [(torch.float64, torch.channels_last), (torch.float32, torch.contiguous_format)])
def test_what_the_kernel_does_not_do_is_done_by_the_formula(dtype, layout):
    from pellucid.numerics import normed_kernels as kernels

    g = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(2, 4, 5, 5, generator=g).to(dtype).contiguous(memory_format=layout) for _ in range(2))
    vectors = [torch.randn(4, generator=g) for _ in range(4)]
    assert torch.equal(kernels.silu_gradient(gradient, x, *vectors), normed.silu_gradient(gradient, x, *vectors))

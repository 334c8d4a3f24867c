"""The kernel of BatchNorm and SiLU, without a GPU."""

from pathlib import Path

import pytest
import torch

from pellucid.numerics import normed
from tests.interpreting import kernels_agree

pytest.importorskip("triton", reason="needs triton")


def test_the_interpreted_kernel_agrees_with_the_formula():
    kernels_agree(Path(__file__).parent)


@pytest.mark.parametrize(("dtype", "layout"), [(torch.float64, torch.channels_last), (torch.float32, torch.contiguous_format)])
def test_what_the_kernel_does_not_do_is_done_by_the_formula(dtype, layout):
    from pellucid.numerics import normed_kernels as kernels

    g = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(2, 4, 5, 5, generator=g).to(dtype).contiguous(memory_format=layout) for _ in range(2))
    vectors = [torch.randn(4, generator=g) for _ in range(4)]
    assert torch.equal(kernels.silu_gradient(gradient, x, *vectors), normed.silu_gradient(gradient, x, *vectors))

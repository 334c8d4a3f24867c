"""The kernel of BatchNorm and SiLU, interpreted on the CPU, against the plain formula. A process of its own: TRITON_INTERPRET=1 must be
set before triton is imported."""

import torch

from pellucid.numerics import normed
from pellucid.numerics import normed_kernels as kernels

TOLERANCES = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}  # of the largest value


def agree(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(shape, generator=g).to(dtype) for _ in range(2))
    x, vectors = x.to(memory_format=torch.channels_last), [torch.randn(shape[1], generator=g) for _ in range(4)]
    expected = normed.silu_gradient(gradient, x, *vectors)
    error = (kernels.silu_gradient(gradient, x, *vectors).float() - expected.float()).abs().max()
    assert expected.abs().max() > 0.5
    assert error <= TOLERANCES[dtype] * expected.abs().max(), (shape, dtype, error)


if __name__ == "__main__":
    for dtype in TOLERANCES:
        for shape in ((2, 16, 20, 20), (1, 80, 7, 5), (3, 300, 4, 4), (2, 1, 9, 9)):
            agree(shape, dtype)
    print("kernels agree")

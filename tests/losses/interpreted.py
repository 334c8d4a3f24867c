"""The kernels, interpreted on the CPU, against the blocks that any device can run. A process of its own: TRITON_INTERPRET=1 must be set
before triton is imported."""

import math

import torch

from pellucid.geometry.masks import pack_bits
from pellucid.losses import mask_blocks
from pellucid.losses import mask_kernels as kernels

B, N, P, K, H, W = 2, 4, 66, 8, 12, 16  # several squares of cells, more than one group of pairs


def inputs(seed: int = 0) -> mask_blocks.Inputs:
    """Boxes of all sizes, many of them empty, some that reach far beyond the grid or are none."""
    g = torch.Generator().manual_seed(seed)
    masks = torch.rand(B, N, H, W, generator=g) < 0.4
    low = torch.rand(B, P, 2, generator=g) * 14 - 2
    boxes = torch.cat((low, low + torch.randn(B, P, 2, generator=g) * 6), -1)
    boxes[:, 24:] = 0  # as of empty slots
    boxes[0, 1], boxes[0, 2] = torch.tensor([-50.0, -40, 200, 90]), torch.tensor([3.0, 4, 11, 9])
    owner = torch.randint(N, (B, P), generator=g)
    return torch.randn(B, P, K, generator=g), torch.randn(B, H, W, K, generator=g), pack_bits(masks), owner, boxes


def sums_and_gradients(offset):
    given = inputs()
    theirs = mask_blocks.bce_sums(given, offset)
    assert (theirs > 1).sum() > 5
    torch.testing.assert_close(kernels.bce_sums(given, offset), theirs)
    scale = torch.rand(B, P, generator=torch.Generator().manual_seed(1))
    scale[:, ::3] = 0
    for ours, plain in zip(kernels.bce_gradients(given, offset, scale), mask_blocks.bce_gradients(given, offset, scale), strict=True):
        assert plain.abs().max() > 0.5
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)


def counts(offset):
    coefficients, proto, bits, owner, boxes = inputs(2)
    boxes[0, 3, 1], boxes[0, 4, 2], boxes[1, 5, 0] = math.nan, math.inf, -math.inf
    for ours, plain in zip(
        kernels.overlap_counts((coefficients, proto, bits, owner, boxes), offset),
        mask_blocks.overlap_counts((coefficients, proto, bits, owner, boxes), offset),
        strict=True,
    ):
        assert plain.max() > 20
        assert torch.equal(ours, plain)


def large_logits_stay_finite():
    coefficients, *rest = inputs(3)
    given = (coefficients * 1e4, *rest)
    torch.testing.assert_close(kernels.bce_sums(given, 0.0), mask_blocks.bce_sums(given, 0.0), rtol=1e-5, atol=1e-2)
    for gradient in kernels.bce_gradients(given, 0.0, torch.ones(B, P)):
        assert torch.isfinite(gradient).all()


if __name__ == "__main__":
    sums_and_gradients(0.5)
    counts(0.0)
    large_logits_stay_finite()
    print("kernels agree")

"""The kernels of the mask losses, without a GPU."""

from pathlib import Path

import pytest
import torch

from pellucid.losses import mask_blocks, masks
from tests.interpreting import kernels_agree

pytest.importorskip("triton", reason="needs triton")


def test_interpreted_kernels_agree_with_the_blocks():
    kernels_agree(Path(__file__).parent)


def test_the_cpu_and_double_precision_use_blocks():
    assert masks._backend(torch.zeros(1)) is mask_blocks
    assert masks._backend(torch.zeros(1, dtype=torch.float64)) is mask_blocks

"""Kernels that cannot be compiled are done without, which is said once."""

import sys

import pytest

from pellucid.assign import aligned
from pellucid.errors import PellucidWarning
from pellucid.losses import masks
from pellucid.numerics import normed
from pellucid.numerics.kernels import compiled


@pytest.mark.parametrize(
    ("where", "module", "work"),
    [
        (aligned, "pellucid.assign.kernels", "assignment"),
        (masks, "pellucid.losses.mask_kernels", "mask losses"),
        (normed, "pellucid.numerics.normed_kernels", "the backward of BatchNorm and SiLU"),
    ],
    ids=["assignment", "masks", "normed"],
)
def test_what_cannot_be_compiled_is_done_without_and_said_once(where, module, work, monkeypatch):
    compiled.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.warns(PellucidWarning, match=f"{work}: expected Triton and a C compiler, got ModuleNotFoundError"):
        assert where._kernels() is None
    assert where._kernels() is None
    compiled.cache_clear()

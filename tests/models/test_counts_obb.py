"""Exact parameter counts and FLOPs of the published table of oriented boxes."""

import json
from pathlib import Path

import pytest
import torch

from pellucid.models.build import build
from pellucid.models.count import count_flops, count_parameters
from pellucid.tasks import TASKS

COUNTS = json.loads((Path(__file__).parent / "counts.json").read_text())


def fused(scale: str, nc: int):
    with torch.device("meta"):
        return build(scale, nc, TASKS["obb"]().stems).fuse()


@pytest.mark.parametrize("scale", "nsmlx")
def test_obb_at_15_classes(scale):
    stated = COUNTS["obb_nc15_1024"][scale]
    model = fused(scale, 15)
    assert count_parameters(model) == stated["fused_o2o"]
    assert count_flops(model, 1024) == pytest.approx(stated["gflops"], abs=0.006)


@pytest.mark.parametrize("scale", "ns")
def test_obb_at_6_classes(scale):
    assert count_parameters(fused(scale, 6)) == COUNTS["other"][f"obb_{scale}_nc6_fused_o2o"]

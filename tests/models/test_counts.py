"""Exact parameter counts and FLOPs of the published table."""

import json
from pathlib import Path

import pytest
import torch

from pellucid.models.build import build
from pellucid.models.count import count_flops, count_parameters
from pellucid.tasks import TASKS

COUNTS = json.loads((Path(__file__).parent / "counts.json").read_text())
STEMS = TASKS["detect"]().stems


def on_meta(scale: str, nc: int):
    with torch.device("meta"):
        return build(scale, nc, STEMS)


@pytest.mark.parametrize("scale", "nsmlx")
def test_detect_at_80_classes(scale):
    stated = COUNTS["detect_nc80_640"][scale]
    model = on_meta(scale, 80)
    assert count_parameters(model) == stated["unfused_both"]
    assert count_parameters(model.fuse("both")) == stated["fused_both"]
    fused = model.fuse()
    assert count_parameters(fused) == stated["fused_o2o"]
    assert count_flops(fused, 640) == pytest.approx(stated["gflops"], abs=0.005)
    assert count_flops(fused, 640, attention=True) == pytest.approx(stated["gflops_attn"], abs=0.006)


def test_detect_at_2_classes():
    assert count_parameters(on_meta("n", 2).fuse()) == COUNTS["other"]["detect_n_nc2_fused_o2o"]

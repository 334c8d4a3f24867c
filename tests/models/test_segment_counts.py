"""Published counts of segmentation, and what a prediction needs of its prototypes."""

import json
from pathlib import Path

import pytest
import torch

from pellucid.models.build import build
from pellucid.models.count import count_flops, count_parameters
from pellucid.models.proto import Prototypes
from pellucid.tasks import TASKS

COUNTS = json.loads((Path(__file__).parent / "counts.json").read_text())["segment_nc80_640"]


def on_meta(scale: str, training_only: tuple[str, ...]):
    task = TASKS["segment"]()
    with torch.device("meta"):
        return build(scale, 80, task.stems, task.shared, training_only)


@pytest.mark.parametrize("scale", "nsmlx")
def test_segment_at_80_classes(scale):
    fused = on_meta(scale, ("semantic",)).fuse()
    assert count_parameters(fused) == COUNTS[scale]["fused_o2o"]
    assert count_flops(fused, 640) == pytest.approx(COUNTS[scale]["gflops"], abs=0.006)
    whole = on_meta(scale, ()).fuse("both")
    assert count_parameters(whole) == COUNTS[scale]["fused_both_semantic"]


def test_the_semantic_head_leaves_with_training_alone():
    maps = [torch.randn(2, c, s, s, generator=torch.Generator().manual_seed(0)) for c, s in ((64, 8), (128, 4), (256, 2))]
    module = Prototypes((64, 128, 256), 5).eval()
    before = module(maps)
    assert {name: tuple(value.shape) for name, value in before.items()} == {"proto": (2, 32, 16, 16), "semantic": (2, 5, 8, 8)}
    assert module.keep({"semantic"})
    after = module(maps)
    assert list(after) == ["proto"]
    assert torch.equal(after["proto"], before["proto"])
    assert not [name for name in module.state_dict() if "semantic" in name]
    assert "semantic" not in Prototypes((64, 128, 256), 5, semantic=False)(maps)

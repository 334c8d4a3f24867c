"""The detector: how it starts, how it is fused, what it refuses."""

import math

import pytest
import torch
from torch import nn

from pellucid.errors import UsageError
from pellucid.models.attention import Attention, attention_weights
from pellucid.models.build import build
from pellucid.tasks import TASKS
from tests.reference.oracle import reference_model

STEMS = TASKS["detect"]().stems


@pytest.fixture(scope="module")
def untrained():
    torch.manual_seed(0)
    return build("n", 80, STEMS)


@pytest.mark.parametrize("name", ["detect-n", "detect-m"])
def test_fused_equals_unfused(name):
    """On weights with statistics as training leaves them: means away from 0, variances away from 1."""
    model, _ = reference_model(name)
    images = torch.rand(2, 3, 96, 128)
    with torch.no_grad():
        whole, fused, both = model(images), model.fuse()(images), model.fuse("both")(images)
    assert fused.many is None
    for ours, theirs in ((fused.one, whole.one), (both.one, whole.one), (both.many, whole.many)):
        for key, value in theirs.outputs.items():
            assert value.std() > 0.01
            assert (ours.outputs[key] - value).abs().max() <= 1e-4 * value.abs().max()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in model.fuse().modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in model.modules())  # the original is untouched


def test_initial_biases(untrained):
    for branch in (untrained.many, untrained.one):
        for level, stride in enumerate((8, 16, 32)):
            assert branch.classes[level][-1].bias[0].item() == pytest.approx(math.log(5 / 80 / (640 / stride) ** 2))
            assert (branch.stems[0][level].last["box"].bias == 2.0).all()
    assert branch.classes[0][-1].bias[0].item() == pytest.approx(-11.537, abs=1e-3)


def test_constants(untrained):
    norms = [module for module in untrained.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 114
    assert all((norm.eps, norm.momentum) == (1e-3, 0.03) for norm in norms)
    assert isinstance(untrained.backbone.layers[9].reduce.act, nn.Identity)
    assert isinstance(untrained.backbone.layers[9].join.act, nn.SiLU)


def test_bytes_and_floats_are_one_image(untrained):
    images = torch.randint(256, (1, 3, 64, 96), dtype=torch.uint8)
    untrained.eval()
    with torch.no_grad():
        a, b = untrained(images), untrained(images.float() / 255)
    torch.testing.assert_close(a.one.outputs["cls"], b.one.outputs["cls"])
    assert a.size == (64, 96)
    assert len(a.one.points) == 8 * 12 + 4 * 6 + 2 * 3


def test_anchor_centres(untrained):
    points, strides = untrained.anchors([(2, 3), (1, 2), (1, 1)], torch.device("cpu"))
    assert points[:4].tolist() == [[4, 4], [12, 4], [20, 4], [4, 12]]
    assert points[6:].tolist() == [[8, 8], [24, 8], [16, 16]]
    assert strides.tolist() == [8] * 6 + [16] * 2 + [32]


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda model: model(torch.rand(1, 3, 100, 96)), "multiple of 32, got 100x96"),
        (lambda model: model.fuse("none"), '"one" or "both"'),
        (lambda model: build("z", 80, STEMS), "one of n, s, m, l, x"),
        (lambda model: build("n", 0, STEMS), "at least one class"),
    ],
)
def test_refusals(untrained, ask, answer):
    with pytest.raises(UsageError, match=answer):
        ask(untrained)


def test_attention_logits_beyond_half_precision():
    """Their sum passes 65,504 before the scale is applied; the weights are finite and sum to one all the same."""
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 64, 100) * 100, torch.randn(1, 2, 64, 100) * 100
    assert (q.transpose(-2, -1) @ k).abs().max() > 65_504
    weights = attention_weights(q.half(), k.half())
    assert weights.dtype == torch.float16
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(1, 2, 100), atol=1e-2, rtol=0)


def test_attention_under_autocast_is_finite():
    torch.manual_seed(0)
    layer = Attention(128).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(layer(torch.randn(1, 128, 10, 10) * 100)).all()

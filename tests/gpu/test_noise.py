"""The noise floor of every task on a GPU: native steps are exact, islands keep their bits, and what is left open is seen."""

import json
from functools import partial

import pytest
import torch

from pellucid.numerics import islands
from pellucid.numerics.noise import Noise, Yardstick, deterministic, measure, report, table
from pellucid.numerics.tf32 import tf32_is_on, tf32_off
from pellucid.tasks import TASKS
from pellucid.train.floor import steps_of, yardstick
from tests.train.test_floor import Leaky, attention_step, batch_of, inside_autocast, make, stale

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")]
DRAWS = 20


def run(name, precision, seeds=(0,), **how):
    return steps_of(partial(make, name, precision, device="cuda"), [batch_of(name, seed).to("cuda") for seed in seeds], **how)


@pytest.mark.parametrize("precision", ["32", "16", "bf16"])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_native_steps_are_exact_and_islands_keep_their_bits(name, precision):
    """`measure` refuses a native gap. Backward inside autocast is what a captured graph records."""
    with tf32_off(), deterministic():
        floor = measure(run(name, precision), DRAWS, yardstick(precision))
        verdict = floor.judge(f"{name} {precision}, backward inside autocast", run(name, precision, backward=inside_autocast)())
    print(table([verdict]), json.dumps(report([verdict], "cuda")), sep="\n")
    assert floor.largest("whole") > 0
    assert verdict.passed
    assert verdict.row("loss").value == 0
    assert verdict.row("whole").ratio <= 1


def test_tf32_is_far_above_the_float32_floor():
    """A float32 claim with TF32 on would compare two other functions."""
    with tf32_off(), deterministic():
        floor = measure(run("detect", "32"), DRAWS, yardstick("32"))
        plain = floor.judge("TF32 off", run("detect", "32")())
    assert tf32_is_on()
    with deterministic():
        verdict = floor.judge("TF32 on", run("detect", "32")())
    print(table([plain, verdict]))
    assert all(row.value == 0 for row in plain.rows)
    assert verdict.row("whole").ratio > 100


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_open_island_is_caught(dtype, monkeypatch):
    floor = measure(partial(attention_step, dtype=dtype, device="cuda"), DRAWS, Yardstick())
    monkeypatch.setattr(islands, "_Island", Leaky)
    verdict = floor.judge("open island", attention_step(Noise(), dtype, "cuda"))
    print(table([verdict]))
    assert not verdict.passed
    assert verdict.row("whole").ratio > 100


def test_a_stale_learning_rate_is_caught():
    with tf32_off(), deterministic():
        floor = measure(run("detect", "32", (0, 1, 0)), DRAWS, yardstick("32"))
        verdict = floor.judge("stale", run("detect", "32", (0, 1, 0), backward=stale)())
    print(table([verdict]))
    assert all(row.value == 0 for row in verdict.rows if not row.metric.startswith("2"))
    assert not verdict.row("2: whole").passed

"""The table of replay: every task, precision and mode, one step and four, against the noise floor of eager steps."""

import json

import pytest
import torch

from pellucid.numerics.noise import report, table
from pellucid.tasks import TASKS
from tests.gpu.test_capture import MODES, verdict_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("precision", ["32", "16", "bf16"])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_one_step_lies_below_the_bound(name, precision, mode):
    verdict = verdict_of(name, precision, mode)
    print(table([verdict]), json.dumps(report([verdict], "cuda")), sep="\n")
    assert verdict.passed


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(TASKS))
def test_four_steps_lie_below_the_bound(name, mode):
    verdict = verdict_of(name, "32", mode, 4)
    print(table([verdict]))
    assert verdict.passed

"""The kernel of assignment, without a GPU."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pellucid.assign import aligned
from pellucid.errors import UsageError
from pellucid.tasks import TASKS
from tests.assign.scenes import scene
from tests.interpreting import kernels_agree

pytest.importorskip("triton", reason="needs triton")


def test_the_interpreted_kernel_agrees_with_comparing_all():
    kernels_agree(Path(__file__).parent)


def test_the_cpu_compares_all(monkeypatch):
    monkeypatch.setattr(aligned, "_kernels", None)  # would fail if called
    assert aligned._claim(*scene(TASKS["detect"]()), 10).valid.sum() > 60


def test_a_form_that_no_kernel_knows_is_refused():
    with pytest.raises(UsageError, match="expected boxes or rboxes or keypoints, got 'circles'"):
        replace(TASKS["detect"]().overlap, form="circles")


def test_scores_are_read_in_place():
    logits = torch.randn(2, 9, 3).mT.contiguous().mT
    anchor, label = torch.tensor([[4, 8], [0, 3]]), torch.tensor([[2, 0], [1, 1]])
    expected = [[logits[0, 4, 2], logits[0, 8, 0]], [logits[1, 0, 1], logits[1, 3, 1]]]
    torch.testing.assert_close(aligned._scores(logits, anchor, label), torch.tensor(expected).sigmoid().sqrt())

"""TF32 is off inside, and every setting is as before afterwards, whichever way it was set."""

import json
import subprocess
import sys

import pytest
import torch

from pellucid.numerics.tf32 import tf32_is_on, tf32_off

STATES = {
    "default": "",
    "old: all on": "b.cuda.matmul.allow_tf32 = b.cudnn.allow_tf32 = True",
    "old: all off": "b.cuda.matmul.allow_tf32 = b.cudnn.allow_tf32 = False",
    "old: medium": "torch.set_float32_matmul_precision('medium')",
    "old: high": "torch.set_float32_matmul_precision('high')",
    "new: products": "b.cuda.matmul.fp32_precision = 'tf32'",
    "new: convolutions full": "b.cudnn.conv.fp32_precision = 'ieee'",
    "new: all on": "b.fp32_precision = 'tf32'",
    "new: all off": "b.cuda.matmul.fp32_precision = b.cudnn.conv.fp32_precision = b.cudnn.rnn.fp32_precision = 'ieee'",
    "mixed": "b.cuda.matmul.allow_tf32 = True; b.cudnn.conv.fp32_precision = 'ieee'",
}
LOOK = """
import json, os, sys, torch
from pellucid.numerics.tf32 import tf32_is_on, tf32_off
b = torch.backends
GETTERS = {
    "matmul precision": torch.get_float32_matmul_precision,  # Lightning asks for this one
    "matmul old": lambda: b.cuda.matmul.allow_tf32, "cudnn old": lambda: b.cudnn.allow_tf32, "global": lambda: b.fp32_precision,
    "matmul": lambda: b.cuda.matmul.fp32_precision, "conv": lambda: b.cudnn.conv.fp32_precision, "rnn": lambda: b.cudnn.rnn.fp32_precision,
}
def look():
    found = {"on": tf32_is_on()}
    for name, getter in GETTERS.items():
        try:
            found[name] = getter()
        except RuntimeError:
            found[name] = "raises"
    return found
def case(state):
    exec(state)
    before = look()
    with tf32_off():
        inside = look()
    try:
        with tf32_off():
            raise KeyError
    except KeyError:
        pass
    print(json.dumps([before, inside, look()]), flush=True)
for state in json.loads(sys.argv[1]):
    if os.fork() == 0:
        case(state)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def seen():
    """For each state the settings before, inside and after; a forked process each."""
    done = subprocess.run([sys.executable, "-c", LOOK, json.dumps(list(STATES.values()))], capture_output=True, text=True, check=True)
    return dict(zip(STATES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("state", STATES)
def test_off_inside_and_as_before_afterwards(state, seen):
    before, inside, after = seen[state]
    assert before["on"] == (state not in ("old: all off", "new: all off"))
    assert inside["on"] is False
    assert "tf32" not in (inside["matmul"], inside["conv"], inside["rnn"])
    assert after == before
    if before["matmul precision"] != "raises":
        assert inside["matmul precision"] == "highest"


def test_nothing_is_touched_where_nothing_is_on(monkeypatch):
    places = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    with tf32_off():
        assert not tf32_is_on()
        monkeypatch.setattr(torch, "set_float32_matmul_precision", None)  # a call would raise
        with tf32_off():
            assert all(place.fp32_precision != "tf32" for place in places)
        monkeypatch.undo()
    assert tf32_is_on()  # PyTorch's own default for convolutions

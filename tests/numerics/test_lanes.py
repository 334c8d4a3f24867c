"""Work side by side: in order without a recording, forked and joined within one."""

from contextlib import contextmanager

import pytest
import torch

from pellucid.numerics import lanes
from pellucid.numerics.lanes import LANES, side_by_side


class Stream:
    """Notes what waits for what."""

    def __init__(self, told, number):
        self.told, self.stream_id, self.device_index, self.device = told, number, 0, "cuda:0"

    def wait_stream(self, other):
        self.told.append(("wait", self.stream_id, other.stream_id))


class Result:
    def __init__(self, told, name):
        self.told, self.name = told, name

    def record_stream(self, stream):
        self.told.append(("kept", self.name, stream.stream_id))


@pytest.fixture
def recording(monkeypatch):
    """A recording that only takes notes."""
    told = []
    current = [Stream(told, 0)]

    @contextmanager
    def stream(lane):
        current.append(lane)
        yield
        current.pop()

    made = iter(range(1, 100))
    monkeypatch.setattr(lanes, "_STREAMS", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(told, next(made)))
    return told, current


def test_without_a_recording_the_works_run_in_order():
    told = []
    assert side_by_side([lambda i=i: told.append(i) or i for i in range(3)], [], lambda _: []) == [0, 1, 2]
    assert told == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 3, LANES + 2])
def test_every_lane_starts_behind_its_fork_and_is_waited_for(recording, count):
    told, current = recording
    shared = Result(told, "shared")
    works = [lambda i=i: told.append(("work", i, current[-1].stream_id)) or Result(told, i) for i in range(count)]
    results = side_by_side(works, [shared], lambda result: [result])
    assert [result.name for result in results] == list(range(count))
    side = range(1, min(count, LANES))
    assert [note for note in told if note[0] == "work"] == [("work", i, i % min(count, LANES)) for i in range(count)]
    first, last = told.index(("work", 0, 0)), told.index(("work", count - 1, (count - 1) % min(count, LANES)))
    for lane in side:
        assert told.index(("wait", lane, 0)) < first
        assert ("kept", "shared", lane) in told
        assert told.index(("wait", 0, lane)) > last
    assert all(("kept", i, 0) in told for i in range(count))


def test_a_fork_within_a_lane_has_lanes_of_its_own(recording):
    _, current = recording

    def inner():
        return side_by_side([lambda: current[-1].stream_id] * 2, [], lambda _: [])

    outer = side_by_side([inner, inner], [], lambda _: [])
    assert len({*outer[0], *outer[1]}) == 4
    assert outer[0][0] == 0
    assert outer == side_by_side([inner, inner], [], lambda _: []), "the same streams serve the next fork"

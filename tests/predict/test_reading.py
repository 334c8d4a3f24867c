"""Reading ahead: order, errors at their place, bounded, and no thread stays."""

import threading
import time

import pytest

from pellucid.predict.reading import read_ahead


def alive():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pellucid")]


@pytest.fixture(autouse=True)
def no_thread_stays():
    yield
    end = time.monotonic() + 5
    while alive() and time.monotonic() < end:
        time.sleep(0.01)
    assert alive() == []


def test_the_order_is_kept_whatever_takes_longest():
    def work(number):
        time.sleep(0.02 * (number % 3 == 0))
        return number * number

    assert [future.result() for future in read_ahead(iter(range(20)), work, 4, 3)] == [number * number for number in range(20)]


def test_an_error_comes_at_its_place_and_the_rest_goes_on():
    def work(number):
        if number == 2:
            raise ValueError("two")
        return number

    futures = list(read_ahead(iter(range(5)), work, 2))
    assert str(futures[2].exception()) == "two"
    assert [futures[i].result() for i in (0, 1, 3, 4)] == [0, 1, 3, 4]


def test_an_error_of_the_source_ends_the_stream():
    def source():
        yield from range(3)
        raise OSError("gone")

    futures = list(read_ahead(source(), lambda number: number, 2))
    assert [future.result() for future in futures[:3]] == [0, 1, 2]
    assert str(futures[3].exception()) == "gone"
    assert len(futures) == 4


def test_few_are_begun_before_they_are_asked_for():
    begun = []
    stream = read_ahead(iter(range(1000)), begun.append, 5)
    next(stream)
    time.sleep(0.3)
    assert 2 <= len(begun) <= 1 + 5 + 1
    stream.close()


@pytest.mark.parametrize("how", ["close", "forget", "raise"])
def test_threads_end_and_the_source_is_closed_when_the_reader_leaves(how):
    closed = threading.Event()

    def source():
        try:
            yield from range(10**9)
        finally:
            closed.set()

    stream = read_ahead(source(), lambda number: number, 3)
    assert next(stream).result() == 0
    assert alive()
    if how == "close":
        stream.close()
    elif how == "forget":
        del stream
    else:
        with pytest.raises(KeyError):
            stream.throw(KeyError())
    assert closed.wait(5)


def test_a_reader_can_leave_a_source_and_work_that_hang():
    go_on = threading.Event()
    begun = []

    def source():
        yield from range(2)
        go_on.wait(20)
        yield 2

    def work(number):
        begun.append(number)
        if number == 1:
            go_on.wait(20)

    stream = read_ahead(source(), work, 3, 2)
    next(stream).result()
    start = time.monotonic()
    stream.close()
    assert time.monotonic() - start < 5
    go_on.set()
    no_thread = time.monotonic() + 5
    while alive() and time.monotonic() < no_thread:
        time.sleep(0.01)
    assert begun in ([0], [0, 1])

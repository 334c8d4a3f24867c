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

"""Functions run by threads: results in order, bounded work in advance."""

import threading
import time
from itertools import count, islice

import pytest

from vitkit.runtime.threads import threaded_map


def test_results_come_in_order_although_later_ones_are_faster() -> None:
    def work(i: int) -> int:
        time.sleep(0.002 * (10 - i))
        return i * i

    assert list(threaded_map(work, range(10), threads=4)) == [i * i for i in range(10)]


def test_no_more_than_the_items_ahead_are_started() -> None:
    started: list[int] = []
    results = threaded_map(lambda i: started.append(i) or i, count(), threads=2, ahead=5)
    assert list(islice(results, 3)) == [0, 1, 2]
    time.sleep(0.05)
    assert len(started) <= 3 + 5
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert threading.active_count() < 20


def test_an_exception_is_raised_in_its_place() -> None:
    results = threaded_map(lambda i: 1 // (2 - i), range(5))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)

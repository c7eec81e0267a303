from collections.abc import Callable, Iterator
from itertools import count, groupby

import pytest

from vitkit.runtime.timing import interleave, medians, time_calls


def test_functions_take_turns_and_the_first_of_a_round_changes() -> None:
    calls: list[str] = []
    runs = {name: lambda name=name: calls.append(name) for name in "abc"}
    seconds = time_calls(runs, rounds=4, warmup=2)
    assert calls[:6] == ["a", "a", "b", "b", "c", "c"]
    assert [name for name, _ in groupby(calls[6:])] == ["a", "b", "c", "b", "c", "a", "c", "a", "b", "a", "b", "c"]
    assert [len(times) for times in seconds.values()] == [4, 4, 4]


def test_results_are_returned_by_name_without_those_of_the_warm_up() -> None:
    numbers: dict[str, Iterator[int]] = {"ones": count(0), "tens": count(0, 10)}
    runs: dict[str, Callable[[], int]] = {name: lambda each=each: next(each) for name, each in numbers.items()}
    assert interleave(runs, rounds=3) == {"ones": [1, 2, 3], "tens": [10, 20, 30]}


def clock_and_sleep() -> tuple[Callable[[], float], Callable[[float], None]]:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return lambda: now[0], sleep


def test_short_calls_are_repeated_until_their_turn_is_over() -> None:
    clock, sleep = clock_and_sleep()
    runs = {"short": lambda: sleep(0.125), "long": lambda: sleep(3.0)}
    seconds = time_calls(runs, rounds=2, turn_seconds=0.5, clock=clock)
    assert seconds == {"short": [0.125] * 8, "long": [3.0] * 2}


def test_the_median_ignores_one_disturbed_call() -> None:
    clock, sleep = clock_and_sleep()
    lengths = iter([9.0, 1.0, 50.0, 2.0])  # the first is the warm-up
    seconds = time_calls({"run": lambda: sleep(next(lengths))}, rounds=3, clock=clock)
    assert medians(seconds) == {"run": 2.0}


def test_an_error_of_a_function_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        time_calls({"bad": lambda: 1 / 0}, rounds=1)

"""Measures run times in interleaved rounds, so that background load slows all candidates alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import TypeVar

Run = Callable[[], object]
Clock = Callable[[], float]  # seconds
T = TypeVar("T")


def interleave(runs: Mapping[str, Callable[[], T]], rounds: int, warmup: int = 1) -> dict[str, list[T]]:
    """Call the functions in turn for `rounds` rounds, and return the results of each, by name.

    The first function of a round changes from round to round, so that none always follows the same other one.
    The results of the `warmup` calls before the rounds are dropped.
    """
    results: dict[str, list[T]] = {name: [] for name in runs}
    names = list(runs)
    for run in runs.values():
        for _ in range(warmup):
            run()
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(runs[name]())
    return results


def time_calls(
    runs: Mapping[str, Run],
    rounds: int,
    *,
    warmup: int = 1,
    turn_seconds: float = 0.0,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each call, by name, measured in interleaved rounds.

    In each round a function is called at least once, and again until `turn_seconds` have passed: calls that are short
    compared with the resolution of the clock need repetition.
    """
    interleave(runs, rounds=0, warmup=warmup)
    turns = {name: partial(_turn, run, turn_seconds, clock) for name, run in runs.items()}
    return {name: list(chain(*times)) for name, times in interleave(turns, rounds, warmup=0).items()}


def time_call(run: Run, clock: Clock = time.perf_counter) -> float:
    started = clock()
    run()
    return clock() - started


def medians(values: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in values.items()}


def _turn(run: Run, at_least: float, clock: Clock) -> list[float]:
    times = [time_call(run, clock)]
    spent = times[0]
    while spent < at_least:
        times.append(time_call(run, clock))
        spent += times[-1]
    return times

from collections.abc import Callable

import pytest

from vitkit.training.budget import Clock


def test_with_epochs_progress_is_step_over_total() -> None:
    clock = Clock(total=7)
    seen = []
    while not clock.done:
        seen.append(clock.progress_at(clock.step))
        clock.tick()
    assert seen == [i / 7 for i in range(7)]
    assert clock.progress == 1.0


def test_a_restored_clock_continues_where_it_was() -> None:
    clock = Clock(total=10)
    for _ in range(4):
        clock.tick()
    again = Clock(**clock.to_dict())
    assert again == clock
    assert again.progress_at(7) == pytest.approx(0.7)


def run_for(
    minutes: float, pace_at: Callable[[float], float], reserve: float, guess: float
) -> tuple[Clock, list[float]]:
    """Simulate a run with the given seconds per step; the first prediction may be wrong."""
    clock = Clock(total=1, minutes=minutes, seconds=3.0)
    clock.replan(guess, reserve)
    seen = []
    while not clock.done:
        seen.append(clock.progress_at(clock.step))
        pace = pace_at(clock.seconds)
        clock.seconds += pace
        clock.tick()
        if clock.step % 10 == 0:
            clock.replan(pace, reserve)
    return clock, seen


@pytest.mark.parametrize("change", [1.0, 3.0, 0.4])
@pytest.mark.parametrize("guess", [0.5, 5.0, 0.05])
def test_with_minutes_run_and_schedule_end_on_time(change: float, guess: float) -> None:
    """The speed changes half-way, and the first prediction is up to ten times off."""
    clock, seen = run_for(2.0, lambda now: 0.5 * (change if now > 60 else 1.0), 5.0, guess)
    assert 120 - 5 - 2 * 1.5 < clock.seconds <= 120 - 5
    assert clock.progress > 0.97
    assert seen == sorted(seen)


def test_with_minutes_progress_is_the_elapsed_fraction_whatever_speed_was_predicted() -> None:
    """A wrong prediction must not use up the schedule in the first seconds."""
    _, seen = run_for(2.0, lambda now: 0.1, 5.0, guess=10.0)
    assert seen[100] == pytest.approx(10 / 112, rel=0.05)

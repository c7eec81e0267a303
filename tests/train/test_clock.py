import pytest

from vitkit.train.clock import Clock


def test_with_steps_progress_is_exactly_step_by_total() -> None:
    clock = Clock(total=7)
    seen = []
    while not clock.done:
        seen.append(clock.progress_at(clock.step))
        clock.tick()
    assert seen == [i / 7 for i in range(7)]
    assert clock.progress == 1.0


def test_a_restored_clock_goes_on_where_it_was() -> None:
    clock = Clock(total=10)
    for _ in range(4):
        clock.tick()
    again = Clock(**clock.numbers())
    assert again == clock
    assert again.progress_at(7) == pytest.approx(0.7)


@pytest.mark.parametrize("slow_down", [1.0, 3.0, 0.4])
def test_with_minutes_the_run_ends_in_time_and_the_schedule_with_it(slow_down: float) -> None:
    """A machine that changes its pace half-way: the plan follows."""
    clock, pace, reserve = Clock(total=1, minutes=2.0), 0.5, 5.0
    clock.replan(pace, reserve)
    while not clock.done:
        clock.seconds += pace * (slow_down if clock.seconds > 60 else 1.0)
        clock.tick()
        if clock.step % 10 == 0:
            clock.replan(pace * (slow_down if clock.seconds > 60 else 1.0), reserve)
    assert 105 < clock.seconds + reserve <= 120
    assert clock.progress == pytest.approx(1.0, abs=0.12)


def test_progress_never_falls_when_the_plan_changes() -> None:
    clock, last = Clock(total=100, minutes=1.0), 0.0
    for step in range(60):
        clock.tick()
        clock.seconds = float(step)
        clock.replan([0.1, 2.0, 0.5][step % 3], 1.0)
        assert last <= clock.progress <= 1.0
        last = clock.progress

"""The best checkpoint interval, by formula and by simulation."""

import numpy as np
import pytest

from vitkit.plan.checkpoint_size import Failures, daly_interval, expected_seconds, goodput, young_interval
from vitkit.plan.simulate import simulate_elapsed

CASES = [Failures(3600, 10, 60), Failures(3600, 120, 300), Failures(600, 60, 30)]


def test_young_by_hand() -> None:
    assert young_interval(Failures(mtbf=20_000, write=25, restart=0)) == 1000


@pytest.mark.parametrize(("mtbf", "best"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_daly_reproduces_the_examples_of_the_paper(mtbf: float, best: float) -> None:
    """Figures 3 to 5, in minutes, with a write of 5 minutes."""
    assert daly_interval(Failures(mtbf, write=5, restart=10)) == pytest.approx(best, rel=0.006)


@pytest.mark.parametrize("f", CASES)
def test_daly_wastes_no_more_than_the_best_interval_of_a_search(f: Failures) -> None:
    best = min(expected_seconds(1, t, f) for t in np.geomspace(f.write / 10, 20 * f.mtbf, 4000))
    assert expected_seconds(1, daly_interval(f), f) <= 1.002 * best
    assert expected_seconds(1, daly_interval(f), f) <= expected_seconds(1, young_interval(f), f)


@pytest.mark.parametrize("f", CASES)
def test_the_simulation_agrees_with_the_formula(f: Failures) -> None:
    rng, interval = np.random.default_rng(0), daly_interval(f)
    work = 200 * interval
    took = np.mean([simulate_elapsed(work, interval, f, rng) for _ in range(100)])
    assert took == pytest.approx(expected_seconds(work, interval, f), rel=0.02)


def test_brute_force_finds_dalys_interval() -> None:
    f, work = Failures(3600, 120, 300), 400_000.0
    intervals = daly_interval(f) * np.array([0.2, 0.4, 1.0, 2.5, 5.0])
    took = [np.mean([simulate_elapsed(work, t, f, np.random.default_rng(i)) for i in range(30)]) for t in intervals]
    assert int(np.argmin(took)) == 2


def test_without_failures_only_writes_cost_time() -> None:
    f = Failures(mtbf=1e15, write=10, restart=300)
    assert simulate_elapsed(1000, 100, f, np.random.default_rng(0)) == 1100
    assert goodput(100, f) == pytest.approx(100 / 110)


def test_writes_longer_than_the_mtbf_use_the_mtbf() -> None:
    assert daly_interval(Failures(mtbf=60, write=200, restart=0)) == 60
    assert expected_seconds(1, 1e9, Failures(1, 1, 1)) == float("inf")

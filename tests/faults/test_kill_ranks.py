from pathlib import Path

import pytest

from .kill_ranks import campaign


@pytest.mark.slow
def test_a_distributed_run_gives_the_same_result_whatever_is_killed(tmp_path: Path) -> None:
    """Two kinds of failure; `python -m tests.faults.kill_ranks` runs all of them any number of times."""
    outcomes = list(campaign(2, tmp_path, seed=1, ways=("one rank", "save")))
    assert len(outcomes) == 2
    assert all(outcome.passed for outcome in outcomes), [outcome.story for outcome in outcomes]

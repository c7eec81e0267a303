from pathlib import Path

import pytest

from .kill_ranks import campaign


@pytest.mark.slow
def test_a_distributed_run_comes_to_the_same_end_whatever_is_killed_on_the_way(tmp_path: Path) -> None:
    """Two ways to be hurt; `python -m tests.faults.kill_ranks` does all of them as often as one likes."""
    outcomes = list(campaign(2, tmp_path, seed=1, ways=("one rank", "save")))
    assert len(outcomes) == 2
    assert all(outcome.good for outcome in outcomes), [outcome.story for outcome in outcomes]

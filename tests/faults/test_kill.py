from pathlib import Path

from .kill import campaign


def test_a_run_that_is_killed_at_random_instants_ends_in_the_same_bits(tmp_path: Path) -> None:
    """A few kills; `python -m tests.faults.kill` does as many as one likes."""
    expected, found, kills = campaign(3, tmp_path, seed=1, say=False)
    assert kills == 3
    assert found == expected

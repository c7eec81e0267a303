from pathlib import Path

from .kill import campaign


def test_a_run_killed_at_random_times_gives_the_same_bits(tmp_path: Path) -> None:
    """A few kills; `python -m tests.faults.kill` runs any number."""
    expected, found, kills = campaign(3, tmp_path, seed=1, verbose=False)
    assert kills == 3
    assert found == expected

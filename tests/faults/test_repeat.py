from pathlib import Path

from .repeat import RUNS_PER_PROCESS, campaign


def test_identical_runs_end_in_the_same_weights(tmp_path: Path) -> None:
    """A few runs in two processes; `python -m tests.faults.repeat` repeats any number."""
    counts = campaign(RUNS_PER_PROCESS + 2, tmp_path, verbose=False)
    assert list(counts.values()) == [RUNS_PER_PROCESS + 2]

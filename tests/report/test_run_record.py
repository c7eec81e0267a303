"""Reading a run folder."""

import shutil
from pathlib import Path

import pytest

from vitkit.errors import UsageError
from vitkit.report.run_record import read_run


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a run folder: it has no recipe\.json"):
        read_run(tmp_path)


def test_a_folder_of_ladder_names_its_runs(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "probe")
    (tmp_path / "ladder.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"vitkit ladder.*use vitkit report .*probe"):
        read_run(tmp_path)


def test_curves_skip_values_that_are_not_finite_and_incomplete_lines(runs: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(runs[0], copy)
    before = read_run(copy).rows("loss")
    with (copy / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"epoch": 9, "loss": NaN}\n{"epoch": 10, "loss": 0.5}\n{"epoch": 11, "lo')
    run = read_run(copy)
    assert run.rows("loss") == [*before, (10.0, 0.5)]
    assert run.last("loss") == 0.5
    assert run.last("nothing") is None

import json
from pathlib import Path

import pytest

from vitkit.cli.main import main
from vitkit.training import get_recipe


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two runs that were stopped before their first log line."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        recipe = json.dumps(get_recipe("digits").to_dict())
        (tmp_path / name / "recipe.json").write_text(recipe, encoding="utf-8")
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def test_one_run_gets_a_report_in_its_folder(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", runs[0], "--json"]) == 0
    path = Path(json.loads(capsys.readouterr().out)["report"])
    assert path == Path(runs[0]) / "report.html"
    assert "has logged nothing yet" in path.read_text(encoding="utf-8")


def test_several_runs_are_compared(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *runs, "--out", str(tmp_path / "both.html")]) == 0
    assert capsys.readouterr().out == f"report  {tmp_path / 'both.html'}\n"
    assert "Comparison of 2 runs" in (tmp_path / "both.html").read_text(encoding="utf-8")


def test_a_folder_that_is_no_run_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"vitkit: {tmp_path} is not a run folder: it has no recipe.json")

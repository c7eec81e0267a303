"""The report while a run goes on."""

import shutil
from pathlib import Path

import pytest

from vitkit.report import LiveReport
from vitkit.report import write as module
from vitkit.training import get_recipe, train


@pytest.fixture
def going_on(runs: list[Path], tmp_path: Path) -> Path:
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "report.html").unlink(missing_ok=True)
    return tmp_path / "run"


def test_it_asks_the_browser_to_come_back_and_opens_neither_data_nor_model(going_on: Path) -> None:
    shutil.rmtree(going_on / "model")
    shutil.rmtree(going_on / "checkpoints")
    LiveReport()(going_on)
    page = (going_on / "report.html").read_text()
    assert '<meta http-equiv="refresh" content="30">' in page
    assert "data-chart" in page
    assert "The run is not finished" in page


def test_it_costs_no_more_than_its_share(going_on: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    written: list[float] = []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def slow(self: LiveReport, folder: Path, refresh: int) -> None:
        written.append(now[0])
        now[0] += 1.0  # a second each: no more than one in a hundred

    monkeypatch.setattr(LiveReport, "_write", slow)
    live = LiveReport()
    for _ in range(1000):
        live(going_on)
        now[0] += 1.0
    assert len(written) == pytest.approx(1000 * module.COST, abs=1.5)


def test_a_run_that_ends_early_leaves_a_page_that_rests(going_on: Path) -> None:
    def stopped() -> None:
        with LiveReport() as live:
            live(going_on)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    page = (going_on / "report.html").read_text()
    assert 'http-equiv="refresh"' not in page
    assert "The run is not finished" in page


def test_an_error_before_the_run_begins_leaves_an_old_report_alone(going_on: Path) -> None:
    (going_on / "report.html").write_text("old")
    with pytest.raises(ValueError, match="refused"), LiveReport():
        raise ValueError("refused")
    assert (going_on / "report.html").read_text() == "old"


def test_a_watcher_that_fails_is_told_of_and_does_not_stop_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def fails(folder: Path) -> None:
        calls.append(folder)
        raise OSError("the disk is full")

    recipe = get_recipe("digits").override(["budget.epochs=0.1", "budget.validate_every=0.05", "config.depth=1"])
    result = train(recipe, tmp_path / "run", on_record=fails)
    assert result.steps == 4
    assert calls == [tmp_path / "run"]
    assert "the run goes on unwatched: OSError: the disk is full" in capsys.readouterr().err

"""Writing reports: where to, and while a run is in progress."""

import shutil
from pathlib import Path

import pytest

from vitkit.errors import UsageError
from vitkit.report import LiveReport, write_report
from vitkit.report import write as module
from vitkit.training import get_recipe
from vitkit.training.train import train


@pytest.fixture
def in_progress(runs: list[Path], tmp_path: Path) -> Path:
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "report.html").unlink(missing_ok=True)
    return tmp_path / "run"


def test_the_live_page_reloads_and_opens_neither_data_nor_model(in_progress: Path) -> None:
    shutil.rmtree(in_progress / "model")
    shutil.rmtree(in_progress / "checkpoints")
    LiveReport()(in_progress)
    page = (in_progress / "report.html").read_text(encoding="utf-8")
    assert '<meta http-equiv="refresh" content="30">' in page
    assert "data-chart" in page
    assert "The run is not finished" in page


def test_updates_take_at_most_their_share_of_the_time(in_progress: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    written: list[float] = []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def slow(self: LiveReport, folder: Path, refresh: int) -> None:
        written.append(now[0])
        now[0] += 1.0  # each update takes a second

    monkeypatch.setattr(LiveReport, "_write", slow)
    live = LiveReport()
    for _ in range(1000):
        live(in_progress)
        now[0] += 1.0
    assert len(written) == pytest.approx(1000 * module.MAX_COST, abs=1.5)


def test_an_interrupted_run_leaves_a_page_that_does_not_reload(in_progress: Path) -> None:
    def stopped() -> None:
        with LiveReport() as live:
            live(in_progress)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    page = (in_progress / "report.html").read_text(encoding="utf-8")
    assert 'http-equiv="refresh"' not in page
    assert "The run is not finished" in page


def test_an_error_before_the_run_starts_keeps_the_old_report(in_progress: Path) -> None:
    (in_progress / "report.html").write_text("old", encoding="utf-8")
    with pytest.raises(ValueError, match="refused"), LiveReport():
        raise ValueError("refused")
    assert (in_progress / "report.html").read_text(encoding="utf-8") == "old"


def test_a_failing_callback_is_reported_and_does_not_stop_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def fails(folder: Path) -> None:
        calls.append(folder)
        raise OSError("the disk is full")

    recipe = get_recipe("digits").override(["budget.epochs=0.1", "budget.validate_every=0.05", "config.depth=1"])
    result = train(recipe, tmp_path / "run", on_record=fails)
    assert result.steps == 4
    assert set(calls) == {tmp_path / "run"}
    assert len(calls) > 1
    assert (
        capsys.readouterr().err.count("failed and will be tried again; training continues (OSError: the disk is") == 1
    )


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, runs: list[Path]) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        write_report(tmp_path)
    with pytest.raises(UsageError, match="no folder"):
        write_report(runs[0], tmp_path / "none" / "report.html")
    with pytest.raises(UsageError, match="no run"):
        write_report([])
    with pytest.raises(UsageError, match="it is a folder; name a file in it"):
        write_report(runs[0], tmp_path)

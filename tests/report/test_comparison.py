"""Several runs in one report."""

import html
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.report.outline import Outline
from vitkit.evaluation import compare
from vitkit.report import write_report
from vitkit.report.comparison import letter
from vitkit.report.run_record import read_run


def test_the_paired_test_uses_the_saved_predictions(runs: list[Path], tmp_path: Path) -> None:
    page = write_report(runs, tmp_path / "both.html").read_text(encoding="utf-8")
    a, b = (read_run(run).evaluation for run in runs)
    assert a is not None
    assert b is not None
    assert html.escape(compare(a, b).summary("A", "B")) in page
    assert f"data-sort='{compare(a, b).p_value!r}'" in page
    assert not Outline(page).open


def test_curves_of_all_runs_are_overlaid(runs: list[Path], tmp_path: Path) -> None:
    page = write_report(runs, tmp_path / "both.html").read_text(encoding="utf-8")
    charts = [json.loads(html.unescape(c)) for c in re.findall(r"data-chart='([^']+)'", page)]
    assert len(charts) == 6
    assert all([line["name"] for line in c["lines"]] == ["A", "B"] for c in charts)
    for place, run in enumerate(runs):
        recorded = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        last = next(m for m in reversed(recorded) if "val_top1" in m)
        assert charts[3]["lines"][place]["points"][-1][1] == pytest.approx(100 * last["val_top1"], rel=1e-5)


def test_seeds_are_averaged_and_differing_settings_are_listed(runs: list[Path], tmp_path: Path) -> None:
    page = write_report(runs, tmp_path / "both.html").read_text(encoding="utf-8")
    mean = sum(json.loads((run / "result.json").read_text(encoding="utf-8"))["test"]["top1"] for run in runs) / 2
    assert f"test top-1 {mean:.2%}, 95 % interval" in page
    assert "<td>seed</td><td>0</td><td>1</td>" in page
    assert "<td>optimizer.lr</td>" not in page


def test_runs_on_other_images_and_unfinished_runs_are_shown_without_a_test(
    runs: list[Path], photograph_run: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    shutil.copytree(runs[0], part)
    (part / "result.json").unlink()
    page = write_report([runs[0], photograph_run, part], tmp_path / "all.html").read_text(encoding="utf-8")
    assert "A and B were not evaluated on the same images" in page
    assert "not finished" in page
    assert not Outline(page).open


def test_letters_continue_after_z() -> None:
    assert [letter(i) for i in (0, 25, 26, 51, 52)] == ["A", "Z", "AA", "AZ", "BA"]

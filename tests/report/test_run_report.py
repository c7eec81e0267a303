"""The report of one run: its structure and its numbers."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.report.outline import Outline
from vitkit.report import write_report
from vitkit.report.run_report import FINISHED, command


def test_the_report_is_well_formed_and_needs_no_other_file(page: str) -> None:
    outline = Outline(page)
    assert not outline.open
    assert outline.headings == list(FINISHED)
    assert outline.addresses
    assert all(address.startswith(("data:", "#")) for address in outline.addresses)
    assert {a[1:] for a in outline.addresses if a.startswith("#")} == set(re.findall(r"<section id='([^']+)'", page))


def test_the_numbers_on_the_page_are_those_of_the_run(runs: list[Path], page: str) -> None:
    result = json.loads((runs[0] / "result.json").read_text(encoding="utf-8"))
    assert f"<strong>{result['test']['top1']:.2%}</strong>" in page
    assert f"<strong>{result['val']['top1']:.2%}</strong>" in page
    assert f"expected calibration error {result['test']['ece']:.3f}" in page
    worst = min(result["test"]["per_class"], key=lambda s: s["f1"])
    assert f"<td data-sort='{worst['f1']!r}'" in page


def test_without_the_data_the_other_sections_are_shown(runs: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    recipe = json.loads((copy / "recipe.json").read_text(encoding="utf-8"))
    (copy / "recipe.json").write_text(json.dumps(recipe | {"data": "<gone>.csv"}), encoding="utf-8")
    page = write_report(copy).read_text(encoding="utf-8")
    assert page.count("could not be opened") == 3
    assert "<h1>&lt;gone&gt;.csv" in page
    assert "<section id='performance'>" in page


def test_a_stopped_run_shows_its_curves_and_its_data(runs: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "stopped"
    shutil.copytree(runs[0], copy)
    shutil.rmtree(copy / "model")
    for path in (copy / "result.json", *copy.glob("predictions-*")):
        path.unlink()
    with (copy / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 99, "lo')  # killed while it wrote
    page = write_report(copy).read_text(encoding="utf-8")
    assert Outline(page).headings == ["Learning curves", "Data set", "Reproduce"]
    assert "The run is not finished" in page
    assert "First training batch" in page
    (copy / "metrics.jsonl").unlink()
    assert "has logged nothing yet" in write_report(copy).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/opt/my\\ bin/vitkit train 'my pets' --out r", "vitkit train 'my pets' --out r"),
        ("/lib/vitkit/__main__.py train pets --processes 2", "vitkit train pets --processes 2"),
        ("mine.py", "mine.py"),
        ("", ""),
    ],
)
def test_the_command_has_no_path_of_the_program(given: str, shown: str) -> None:
    run = SimpleNamespace(environment={"command": given})
    assert command(run) == shown  # type: ignore[arg-type]  # it uses only the environment

"""The data set of a run."""

import html
import re
from pathlib import Path

from tests.report.conftest import NASTY
from tests.report.outline import Outline
from vitkit.report import write_report


def test_class_names_are_escaped_and_unreadable_files_are_named(photograph_run: Path) -> None:
    page = write_report(photograph_run).read_text(encoding="utf-8")
    assert not Outline(page).open
    assert "<i>" not in page
    assert html.escape(NASTY) in page
    assert "1 images could not be read and were skipped" in page
    assert re.search(r"<td>(?:train|val)</td><td>[^<]*bird/0\.jpg</td>", page)


def test_the_first_batch_shows_its_labels(page: str) -> None:
    part = page[page.index("First training batch") : page.index("<section id='model-internals'")]
    assert "All 32 images of step 0" in part
    assert part.count("<img") == 32
    assert re.search(r"\d \(\d+%\), \d \(\d+%\)", part)  # mixed images name both classes

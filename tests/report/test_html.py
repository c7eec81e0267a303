"""HTML elements and the page around them."""

import base64
import hashlib
import re

from tests.report.outline import Outline
from vitkit.report.html import Cell, anchor, duration, percent, section, table


def test_the_content_security_policy_allows_only_the_embedded_style_and_script(page: str) -> None:
    for tag in ("style", "script"):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page
    assert Outline(page).styled == 0  # attributes that the policy would block


def test_tables_escape_text_sort_by_numbers_and_scroll_if_long() -> None:
    rows = [["<b>", percent(0.5), Cell("–", None)]] * 21
    found = table(["name", "share", "none"], rows, "a caption")
    assert not Outline(found).open
    assert "&lt;b&gt;" in found
    assert "data-sort='0.5'" in found
    assert "data-sort=''" in found
    assert "class='scroll tall'" in found
    assert "tall" not in table(["name", "share", "none"], rows[:20])


def test_sections_have_an_anchor() -> None:
    assert anchor("F1 per class") == "f1-per-class"
    assert section("Data set", "text").startswith("<section id='data-set'>")


def test_durations_are_written_in_a_readable_unit() -> None:
    assert [duration(s) for s in (90, 600, 9000)] == ["90 s", "10.0 min", "2.5 h"]

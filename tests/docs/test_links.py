"""What the pages link to is there: files, pictures, headings."""

import re
from pathlib import Path

import pytest

from .pages import PAGES, ROOT, anchors, name, text

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]*)\)")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in LINK.findall(text(page)):
        if re.match(r"https?:", link):
            continue
        to, _, anchor = link.partition("#")
        meant = (page.parent / to).resolve() if to else page
        there = meant.exists() and meant.is_relative_to(ROOT)
        if not there or (anchor and (meant.suffix != ".md" or anchor not in anchors(meant))):
            wrong.append(link)
    assert not wrong


def test_every_picture_is_shown_somewhere() -> None:
    shown = {link.rpartition("/")[2] for page in PAGES for link in LINK.findall(text(page))}
    assert {p.name for p in (ROOT / "docs" / "images").iterdir()} <= shown


def test_no_page_holds_a_place_for_something_to_come() -> None:
    for page in PAGES:
        assert not re.search(r"@[A-Z]+@|\bTODO\b|\bTBD\b|\bXXX\b", page.read_text()), name(page)

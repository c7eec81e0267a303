"""Links of the pages lead to existing files, images and headings."""

import re
from pathlib import Path

import pytest

from .pages import PAGES, ROOT, anchors, name, text

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]*)\)")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_existing_files_and_headings(page: Path) -> None:
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


def test_every_image_is_used_on_a_page() -> None:
    shown = {link.rpartition("/")[2] for page in PAGES for link in LINK.findall(text(page))}
    assert {p.name for p in (ROOT / "docs" / "images").iterdir()} <= shown


def test_pages_contain_no_placeholders() -> None:
    for page in PAGES:
        assert not re.search(r"@[A-Z]+@|\bTODO\b|\bTBD\b|\bXXX\b", page.read_text(encoding="utf-8")), name(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_source_files_named_in_the_text_exist(page: Path) -> None:
    named = re.findall(r"`((?:[\w.]+/)+\w+\.py)`", page.read_text(encoding="utf-8"))
    bases = (ROOT, ROOT / "src" / "vitkit", page.parent)
    assert not [path for path in named if not any((base / path).exists() for base in bases)]

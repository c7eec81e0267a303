"""The documentation site: built without warnings, and checked in Chromium at the widths of a desktop and a phone."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser import open_page

from .pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site with chapters that are not run: `test_learn.py` runs them."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "docs/build.py", "--no-run", "--out", folder / "out", "--work", folder / "work"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-3000:]}"
    assert not done.stderr
    return folder / "out"


def pages(site: Path) -> list[Path]:
    """Return the written pages, without the listings of source files."""
    kept = [p for p in sorted(site.rglob("*.html")) if p.relative_to(site).parts[0] not in ("source", "_static")]
    return [p for p in kept if p.name not in ("genindex.html", "search.html")]


LOOK = """
const shown = [...document.images].filter((i) => i.offsetParent !== null);
return {
  broken: [...document.images].filter((i) => !i.complete || !i.naturalWidth).map((i) => i.src),
  formulas: [...document.querySelectorAll('article math')].map((m) => m.getBoundingClientRect())
      .map((r) => [r.width, r.height]),
  wrong: [...document.querySelectorAll('merror, .problematic, .system-message')].map((e) => e.textContent),
  raw: [...document.querySelectorAll('article p')].map((p) => p.innerText)
      .filter((text) => /\\$\\$|\\\\(frac|sqrt|mathrm|begin)\\b/.test(text)),
  external: performance.getEntriesByType('resource').map((e) => e.name).filter((n) => !/^(file|data):/.test(n)),
  overflow: document.documentElement.scrollWidth - innerWidth,
  words: document.querySelector('article').innerText.length,
  pictures: shown.length,
};
"""


def test_every_page_is_complete_at_both_widths(site: Path, browser: Any) -> None:
    formulas = pictures = 0
    for page in pages(site):
        for width in (1280, 390):
            open_page(browser, page.as_uri(), width)
            seen, where = browser.execute_script(LOOK), f"{page.relative_to(site)} at {width}"
            assert not seen["broken"], where
            assert not seen["wrong"], where
            assert not seen["raw"], f"{where}: a formula was not rendered"
            assert not seen["external"], f"{where}: loads from another host"
            assert seen["overflow"] <= 1, f"{where}: {seen['overflow']} pixels too wide"
            assert seen["words"] > 100, where
            assert all(w > 4 and h > 4 for w, h in seen["formulas"]), where
            formulas, pictures = formulas + len(seen["formulas"]), pictures + seen["pictures"]
        assert not browser.get_log("browser"), page
    assert formulas >= 8
    assert pictures >= 20


def test_the_navigation_has_all_parts(site: Path, browser: Any) -> None:
    open_page(browser, (site / "index.html").as_uri())
    every = "return [...document.querySelectorAll(arguments[0])].map((e) => e.pathname ?? e.textContent)"
    parts = ["Start", "Learn", "Guides", "Reference", "Decisions"]
    assert browser.execute_script(every, ".sidebar-tree .caption") == parts
    there = browser.execute_script(every, ".sidebar-tree a")
    assert {Path(p).name for p in there} >= {"your-images.html", "explain.html", "commands.html", "01_attention.html"}


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    """Links are allowed; scripts, styles, fonts and images must be part of the site."""
    loads = re.compile(r"""<(?:script|img|link|iframe)[^>]+(?:src|href)=["'](?:https?:)?//[^"']+""")
    for page in site.rglob("*.html"):
        assert not loads.findall(page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")), style

"""Every code block of README and docs runs, page by page, from top to bottom."""

import re
import shutil
from pathlib import Path

import pytest

from .pages import PAGES, ROOT, Block, blocks, name
from .run import run

RUN = ("bash", "python")  # executed
SHOWN = ("text", "math", "json", "yaml")  # not executed: output, formulas, files
SKIPPED = re.compile(r'no-run "[^"]+"')

WITH_CODE = [page for page in PAGES if any(block.language in RUN and not block.notes for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_code_runs(page: Path, page_folder: Path, reader_files: Path) -> None:
    wanted = [block for block in blocks(page) if block.language in RUN and not block.notes]
    if not any("--out runs/mine" in block.code for block in wanted):
        shutil.copytree(reader_files / "runs", page_folder / "runs")
    for block in wanted:
        where = f"{name(page)}, line {block.line}"
        try:
            run(block, where)
        except Exception as error:
            error.add_note(where)
            raise


def test_every_block_names_its_language() -> None:
    for page in PAGES:
        for block in blocks(page):
            where = f"{name(page)}, line {block.line}"
            assert block.language in (*RUN, *SHOWN), f"{where}: {block.language or 'no language'}"
            assert not block.notes or SKIPPED.fullmatch(block.notes), f"{where}: {block.notes!r}"


def test_few_blocks_are_skipped() -> None:
    """At most one block in six may be marked no-run."""
    found: list[tuple[Path, Block]] = [(p, b) for p in PAGES for b in blocks(p) if b.language in RUN]
    skipped = [(p, b) for p, b in found if b.notes]
    assert len(found) > 80
    assert len(skipped) <= len(found) / 6, [f"{name(p)}, line {b.line}" for p, b in skipped]


def test_guides_and_start_pages_contain_code() -> None:
    names = {name(page) for page in WITH_CODE}
    assert {"README.md", "docs/start/your-images.md", "docs/reference/commands.md"} <= names
    assert {f"docs/guides/{p.name}" for p in (ROOT / "docs" / "guides").glob("*.md")} <= names

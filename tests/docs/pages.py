"""Find the documentation pages and the code blocks in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "benchmarks/README.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]

_OPENING = re.compile(r"^(`{3,})(.*)$")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    notes: str  # the text after the language: empty, or no-run and the reason
    code: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced code blocks of a page, also those inside lists."""
    fence, begun, info, inside = "", 0, "", []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        opening = _OPENING.match(line.strip())
        if not fence and opening:
            fence, begun, info, inside = opening[1], number, opening[2].strip(), []
        elif fence and line.strip() == fence:
            language, _, notes = info.partition(" ")
            yield Block(begun, language, notes, "\n".join(inside))
            fence = ""
        else:
            inside.append(line)
    assert not fence, f"{name(page)}, line {begun}: the block is not closed"


def text(page: Path) -> str:
    """Return the page without its code."""
    return re.sub(
        r"`[^`\n]+`", "", re.sub(r"^(`{3,}).*?^\1[ \t]*$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    )


def anchors(page: Path) -> set[str]:
    """Return the anchors of its headings, as code hosts derive them."""
    without_code = re.sub(r"^(`{3,}).*?^\1[ \t]*$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    heads = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h) for h in re.findall(r"^#{1,6} +(.+?) *$", without_code, flags=re.M)
    ]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}

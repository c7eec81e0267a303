"""Output of the commands: tables for people, one JSON document for scripts."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import arg

from vitkit.data.progress_bar import progress_bar as progress_bar

JsonOption = Annotated[bool, arg(help="Print the results as JSON.")]

MIN_NAME, MIN_TEXT = 32, 12  # characters that the first and other text columns keep
MAX_CLASS_ROWS = 60  # of one table
UNLIMITED = 10_000  # characters

# Characters that a terminal obeys instead of printing them: control characters, and those that reorder text
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def print_json(value: Any) -> None:
    print(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a JSON document that is safe to print: characters that a terminal obeys are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # JSON has escaped the others already


def printable(text: str) -> str:
    """Return the text for a terminal. Names of classes and files come from others, and may contain escape sequences."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def csv_cell(value: Any) -> Any:
    """Return the value for a CSV file. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    text = isinstance(value, str) and value.lstrip("\t\r\n ")
    return f"'{value}" if text and text[0] in "=+-@" and not re.fullmatch(r"[+-]?[\d.]*", text) else value


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table with right-aligned numbers. In a pipe it is as wide as its content.

    In a narrow terminal texts wrap. Names, in the first column, and numbers do not, even if they exceed the width.
    """
    lines = [[printable(str(cell)) for cell in row] for row in rows]
    table = Table(title=Text(printable(title)), title_justify="left", title_style="bold", header_style="bold")
    for i, name in enumerate(columns):
        numeric = all(_is_number(line[i]) for line in lines)
        longest = max((len(cell) for line in lines for cell in line[i].splitlines()), default=0)
        least = max(len(name), longest if numeric else min(longest, MIN_TEXT if i else MIN_NAME))
        align: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(Text(name), justify=align, no_wrap=numeric, min_width=least, overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))  # Text: a file called x[bold].jpg is not markup
    out = console()
    out.width = max(out.width, out.measure(table, options=out.options.update(max_width=UNLIMITED)).minimum)
    out.print(table, soft_wrap=True)


class _SafeConsole(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **options)


def console(stderr: bool = False) -> Console:
    wide = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return _SafeConsole(stderr=stderr, width=wide, highlight=False, soft_wrap=wide is not None)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").replace("-", "").strip().isdigit() or not text


def millions(count: int) -> str:
    return f"{count / 1e6:,.2f}"


def giga(count: int) -> str:
    return f"{count / 1e9:,.2f}" if count >= 1e7 else f"{count / 1e9:,.4f}"

"""How commands print: a table for people, one JSON document for scripts, one line for an error."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vitkit.data.progress import tracked as tracked


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    print()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns of numbers are set to the right. In a pipe the table is as wide as it needs to be."""
    lines = [[str(cell) for cell in row] for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for i, name in enumerate(columns):
        numeric = all(_is_number(line[i]) for line in lines)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=numeric)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))  # as it is: a file called x[bold].jpg is no markup
    console().print(table)


def console(stderr: bool = False) -> Console:
    wide = None if sys.stdout.isatty() else 200
    return Console(stderr=stderr, width=wide, highlight=False, soft_wrap=wide is not None)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").replace("-", "").strip().isdigit() or not text


def millions(count: int) -> str:
    return f"{count / 1e6:,.2f}"


def giga(count: int) -> str:
    return f"{count / 1e9:,.2f}" if count >= 1e7 else f"{count / 1e9:,.4f}"

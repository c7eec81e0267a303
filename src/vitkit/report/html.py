"""HTML elements, and the page around them.

The page needs no network and no other file. Its content security policy allows only its own style and script, by their
hashes, and embedded images.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any

_NUMBER = " class='number'"


def page(title: str, body: Iterable[str], refresh: int = 0) -> str:
    """Return the document. The browser reloads it every `refresh` seconds; 0 means never."""
    folder = resources.files("vitkit.report")
    style, script = ("\n" + (folder / name).read_text(encoding="utf-8") for name in ("style.css", "report.js"))
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    again = f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{again}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n<body>\n'
        f"<main>\n{''.join(body)}</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def header(title: str, subtitle: str, sections: Sequence[str]) -> str:
    """Return the title, one line below it, and links to the sections."""
    links = "".join(f"<a href='#{anchor(p)}'>{escape(p)}</a>" for p in sections)
    return (
        f"<header><h1>{escape(title)}</h1>\n<p>{escape(subtitle)}</p>\n"
        f"<nav aria-label='Sections'>{links}</nav></header>\n"
    )


def section(title: str, *parts: str) -> str:
    return f"<section id='{anchor(title)}'>\n<h2>{escape(title)}</h2>\n{''.join(parts)}</section>\n"


def anchor(title: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in title.lower())


def heading(title: str) -> str:
    return f"<h3>{escape(title)}</h3>\n"


def text(words: str) -> str:
    return f"<p>{escape(words)}</p>\n"


def cards(values: Sequence[tuple[str, str, str]]) -> str:
    """Show the key figures as (name, number, note)."""
    items = "".join(
        f"<div class='card'><span>{escape(name)}</span><strong>{escape(number)}</strong>"
        f"<small>{escape(remark)}</small></div>"
        for name, number, remark in values
    )
    return f"<div class='cards'>{items}</div>\n"


@dataclass(frozen=True)
class Cell:
    """A table cell: its text, and the number by which it sorts. None always sorts last."""

    shown: str
    sort: float | None
    bar: float | None = None  # 0…1, drawn next to the number


def percent(share: float | None, bar: bool = False) -> Cell:
    return Cell("–", None) if share is None else Cell(f"{share:.1%}", share, share if bar else None)


def count(number: int, most: int = 0) -> Cell:
    """Return a cell; with `most`, it has a bar of the length number / most."""
    return Cell(f"{number:,}", number, number / most if most else None)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a table that is sorted by clicking a heading and scrolls if it is too wide or has more than 20 rows."""
    rows = list(rows)
    kinds = [isinstance(c, Cell | int | float) for c in rows[0]] if rows else [False] * len(columns)
    head = "".join(
        f"<th scope='col'{_NUMBER * k}><button type='button'>{escape(c)}</button></th>"
        for c, k in zip(columns, kinds, strict=True)
    )
    lines = "".join(f"<tr>{''.join(_cell(c) for c in row)}</tr>\n" for row in rows)
    named = f"<caption>{escape(caption)}</caption>\n" if caption else ""
    label, tall = escape(caption or "table", quote=True), " tall" * (len(rows) > 20)
    return (
        f"<div class='scroll{tall}' tabindex='0' role='region' aria-label='{label}'><table>\n{named}"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table></div>\n"
    )


def facts(values: Iterable[tuple[str, Any]]) -> str:
    lines = "".join(f"<dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd>\n" for k, v in values)
    return f"<dl>\n{lines}</dl>\n"


def code(words: str) -> str:
    return f"<pre tabindex='0'><code>{escape(words)}</code></pre>\n"


def details(title: str, *parts: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{''.join(parts)}</details>\n"


def figure(content: str, caption: str) -> str:
    """Wrap HTML in a figure with a caption."""
    return f"<figure>{content}<figcaption>{escape(caption)}</figcaption></figure>\n"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _cell(value: Any) -> str:
    if isinstance(value, Cell):
        sort = "" if value.sort is None else repr(float(value.sort))
        return f"<td data-sort='{sort}'{_NUMBER}>{_bar(value.bar)}{escape(value.shown)}</td>"
    if isinstance(value, int | float):
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        return f"<td data-sort='{value}'{_NUMBER}>{shown}</td>"
    return f"<td>{escape(str(value))}</td>"


def _bar(share: float | None) -> str:
    if share is None:
        return ""
    width = 48 * min(max(share, 0.0), 1.0)
    return f"<svg class='bar' width='48' height='8' aria-hidden='true'><rect width='{width:.1f}' height='8'/></svg> "


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

"""The page itself: pieces of HTML, and the frame around them."""

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from matplotlib.figure import Figure


def page(title: str, body: Iterable[str]) -> str:
    style = resources.files("vitkit.report").joinpath("style.css").read_text()
    script = resources.files("vitkit.report").joinpath("sort.js").read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>\n{style}</style>\n</head>\n<body>\n'
        f"<main>\n{''.join(body)}</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{''.join(parts)}</section>\n"


def text(words: str) -> str:
    return f"<p>{escape(words)}</p>\n"


def cards(values: Sequence[tuple[str, str, str]]) -> str:
    """(name, number, remark): the few numbers that matter most."""
    items = "".join(
        f"<div class='card'><span>{escape(name)}</span><strong>{escape(number)}</strong>"
        f"<small>{escape(remark)}</small></div>"
        for name, number, remark in values
    )
    return f"<div class='cards'>{items}</div>\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Click a heading to sort by it."""
    head = "".join(f"<th scope='col'><button type='button'>{escape(str(c))}</button></th>" for c in columns)
    lines = "".join(f"<tr>{''.join(_cell(c) for c in row)}</tr>\n" for row in rows)
    return f"<div class='scroll'><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table></div>\n"


def facts(values: Iterable[tuple[str, Any]]) -> str:
    lines = "".join(f"<dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd>\n" for k, v in values)
    return f"<dl>\n{lines}</dl>\n"


def code(words: str) -> str:
    return f"<pre><code>{escape(words)}</code></pre>\n"


def details(title: str, *parts: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{''.join(parts)}</details>\n"


def figure(drawing: Figure, caption: str, *, pixels: bool = False) -> str:
    """As SVG, sharp at any size; or as PNG for drawings that are made of pixels anyway."""
    file = io.BytesIO()
    kind, mime = ("png", "image/png") if pixels else ("svg", "image/svg+xml")
    drawing.savefig(file, format=kind, bbox_inches="tight", transparent=True, dpi=160)
    source = f"data:{mime};base64,{base64.b64encode(file.getvalue()).decode()}"
    return (
        f"<figure><img src='{source}' alt='{escape(caption, quote=True)}' loading='lazy'>"
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
    )


def _cell(value: Any) -> str:
    number = isinstance(value, int | float)
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if number else str(value)
    return f"<td data-sort='{value}' class='number'>{shown}</td>" if number else f"<td>{escape(shown)}</td>"

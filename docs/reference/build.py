"""Write the reference from the code: `python docs/reference/build.py`, or `--check` to see whether it is up to date.

Commands are what their own --help says; Python names bring their signature and docstring, settings the comment beside
their field. Each has an example from `examples.py`, which the tests run.
"""

import argparse
import contextlib
import dataclasses
import inspect
import io
import os
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import examples  # noqa: E402

import vitkit  # noqa: E402
from vitkit.cli.main import COMMANDS, main  # noqa: E402
from vitkit.training.recipe import Recipe  # noqa: E402
from vitkit.training.recipes import RECIPES  # noqa: E402

NOTE = "<!-- Written by docs/reference/build.py: change the code, then run it. -->"


def pages() -> dict[str, str]:
    return {"commands.md": commands(), "python.md": python(), "recipes.md": recipes()}


# ---------------------------------------------------------------------------------------------------------- commands


def commands() -> str:
    told = [
        "# Commands",
        NOTE,
        "Every command prints a table for people, and one JSON document with `--json` where it has that option. Exit\n"
        "codes: 0 done, 1 the work failed, 2 bad usage or input (one line says what, where and what to do), 130 and\n"
        "143 interrupted, with the state saved. `vitkit COMMAND --help` says the same as this page.",
        table(["command", ""], [[f"[`{name}`](#vitkit-{name})", said(name)[1]] for name in COMMANDS]),
    ]
    for name in COMMANDS:
        usage, purpose, rows = said(name)
        told += [f"## vitkit {name}", purpose, f"```text\n{usage}\n```", table(["", ""], rows)]
        told.append("\n\n".join(fenced("bash", example) for example in examples.COMMANDS.get(name, ())))
    return page(told)


def said(command: str) -> tuple[str, str, list[list[str]]]:
    """What --help prints: usage, purpose, and a row for every argument and option."""
    printed, width = io.TextIOWrapper(io.BytesIO(), "utf-8"), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "500"  # wide enough for every row to be one line
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([command, "--help"])
    finally:
        os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)
    printed.seek(0)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed.read()).splitlines()
    usage, _, purpose = lines[:3]
    found = [re.fullmatch(r"│ (\S.*?)(?:\s{2,}(\S.*?))?\s*│", line) for line in lines]
    rows: list[list[str]] = []
    for line, row in zip(lines, found, strict=True):
        if row and not row[1].startswith("-h"):
            rows.append([f"`{row[1]}`", row[2] or ""])
        elif rows and (more := re.fullmatch(r"│ {3,}(\S.*?)\s*│", line)):  # of a row that would be too long
            rows[-1][1] = f"{rows[-1][1]} {more[1]}".strip()
    if silent := [name for name, what in rows if not what]:
        raise ValueError(f"vitkit {command}: no help for {silent}")
    return usage.removeprefix("usage: "), purpose, rows


# ------------------------------------------------------------------------------------------------------------ python


def python() -> str:
    told = ["# Python", NOTE, "```python\nimport vitkit\n```", "These names are public; scripts may rely on them."]
    names = [name for name in vitkit.__all__ if not name.startswith("__")]
    told.append(table(["name", ""], [[f"[`{n}`](#vitkit{n.lower()})", first_line(public(n))] for n in names]))
    for name in names:
        thing = public(name)
        shape = "" if dataclasses.is_dataclass(thing) else fenced("text", signature(f"vitkit.{name}", thing))
        told += [f"## vitkit.{name}", shape, doc(thing)]
        if name == "Recipe":
            told.append("A frozen dataclass of everything that decides what a run does: [its settings](recipes.md).")
        elif dataclasses.is_dataclass(thing):
            told.append(table(["field", "default", ""], fields(thing)))
        if inspect.isclass(thing):
            for method, what in methods(thing):
                told.append(f"- `{signature(method, what, width=10_000)}`{': ' + flat(doc(what)) if doc(what) else ''}")
        if name in examples.PYTHON:
            told.append(fenced("python", examples.PYTHON[name]))
    from vitkit import errors

    told += ["## Errors", f"```text\n{inspect.getdoc(errors)}\n```"]
    return page(told)


def public(name: str) -> Any:
    """The function, also where a package of its name stands before it."""
    thing = getattr(vitkit, name)
    return getattr(thing, name) if inspect.ismodule(thing) else thing


def signature(name: str, thing: Any, width: int = 100) -> str:
    whole = inspect.signature(thing)
    shown, starred = [], False
    for p in whole.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        given = "" if p.default is p.empty else f" = {p.default!r}"
        shown.append(f"{stars}{p.name}: {plain(p.annotation)}{given}")
    gives = "" if whole.return_annotation in (whole.empty, None) else f" -> {plain(whole.return_annotation)}"
    line = f"{name}({', '.join(shown)}){gives}"
    if len(line) <= width:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in shown) + f"){gives}"


def plain(kind: Any) -> str:
    """An annotation without the names of modules: `Tensor`, not torch.Tensor; `Float[Tensor, "b t d"]`."""
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    text = re.sub(r"\b(?:\w+\.)+(?=[A-Za-z_])", "", text).replace("NoneType", "None")
    return re.sub(r"\[Tensor, '([^']*)'\]", r'[Tensor, "\1"]', text)


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name, thing in vars(kind).items():
        if not name.startswith("_") or name == "__call__":
            what = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
            if inspect.isfunction(what):
                yield ("" if name == "__call__" else f".{name}"), what


def fields(kind: type) -> list[list[str]]:
    """Name, default and the comment beside each."""
    source, hints = inspect.getsource(kind).splitlines(), typing.get_type_hints(kind)
    rows = []
    for field in dataclasses.fields(kind):
        at = next(i for i, line in enumerate(source) if re.match(rf"    {field.name}:", line))
        comment = source[at].partition("  # ")[2]
        above = source[at - 1].strip().removeprefix("# ")
        if not comment and above[:1].islower() and source[at - 1].strip().startswith("# "):  # a capital heads a group
            comment = above
        if typing.get_origin(hints[field.name]) is Literal:
            choices = ", ".join(f"`{choice}`" for choice in typing.get_args(hints[field.name]))
            comment = f"{choices}; {comment}" if comment else choices
        rows.append([f"`{field.name}`", f"`{default(field)}`", comment])
    return rows


def default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return f"{type(made).__name__}()" if dataclasses.is_dataclass(made) else repr(made)
    return "needed"


# ----------------------------------------------------------------------------------------------------------- recipes


def recipes() -> str:
    told = [
        "# Recipes and their settings",
        NOTE,
        "A recipe is everything that decides what a training run does. `--recipe NAME` takes one of these, and\n"
        "`--set KEY.PATH=VALUE` changes it; a key that does not exist is an error.",
        table(
            ["recipe", "expected result"], [[f"`{name}`", recipe.expected_result] for name, recipe in RECIPES.items()]
        ),
        fenced("bash", examples.RECIPE),
    ]
    for path, kind in parts(Recipe):
        told += [f"## {path or 'recipe'}", doc(kind), table(["key", "default", ""], [
            [f"`{path + '.' if path else ''}{row[0].strip('`')}`", *row[1:]]
            for row in fields(kind) if row[0].strip("`") not in dict(parts(kind))
        ])]  # fmt: skip
    return page(told)


def parts(kind: type) -> Iterator[tuple[str, type]]:
    yield "", kind
    for field in dataclasses.fields(kind):
        if field.default_factory is not dataclasses.MISSING and dataclasses.is_dataclass(field.default_factory):
            yield field.name, field.default_factory


# ---------------------------------------------------------------------------------------------------------- Markdown


def page(parts_: list[str]) -> str:
    return "\n\n".join(part.strip() for part in parts_ if part.strip()) + "\n"


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def fenced(language: str, code: str) -> str:
    return f"```{language}\n{inspect.cleandoc(code)}\n```"


def doc(thing: Any) -> str:
    """Its own words: a dataclass without any gets some of Python's, which say nothing. Drawn lists stay as drawn."""
    own = inspect.getdoc(thing) or ""
    if not own or own.startswith(f"{getattr(thing, '__name__', '')}("):
        return ""
    return "\n\n".join(
        f"```text\n{part}\n```" if re.search(r"^\S+ {2,}\S", part, re.M) or part.startswith(" ") else part
        for part in own.split("\n\n")
    )


def first_line(thing: Any) -> str:
    return flat(doc(thing).partition("\n\n")[0])


def flat(text: str) -> str:
    return " ".join(text.replace("```text", "").replace("```", "").split())


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page would change")
    asked, stale = parser.parse_args(), []
    for name, text in pages().items():
        if not (HERE / name).exists() or (HERE / name).read_text() != text:
            stale.append(name)
            if not asked.check:
                (HERE / name).write_text(text)
    print("written:" if not asked.check else "out of date:", ", ".join(stale) or "nothing")
    return int(asked.check and bool(stale))


if __name__ == "__main__":
    sys.exit(cli())

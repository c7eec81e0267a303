"""Run the chapters and keep what they show: as Markdown with outputs and figures, or as notebooks.

    python docs/learn/build.py --out build/learn              every chapter as NN_slug.md, figures in figures/
    python docs/learn/build.py 01 05 --out build/learn        only these
    python docs/learn/build.py --notebook --out build/learn   NN_slug.ipynb as well, outputs included
    python docs/learn/build.py --notebook --no-run --out nb   notebooks alone, not run

A chapter is a Python script in percent format: `# %% [markdown]` begins a cell of text, `# %%` one of code. All cells
share one namespace, as in a notebook. A cell that fails ends its chapter and names its line; the others go on.
"""

import argparse
import base64
import contextlib
import io
import json
import os
import shutil
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import lib  # noqa: E402


@dataclass
class Cell:
    kind: str  # markdown, code
    text: str
    line: int  # of the file, where the text begins
    shown: list[tuple[str, Any]] = field(default_factory=list)  # text, source: str; figure: (path, what it says)


def chapters() -> list[Path]:
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def read(path: Path) -> list[Cell]:
    cells: list[Cell] = []
    lines: list[str] = []

    def close() -> None:
        if cells:
            body = [line.removeprefix("#").removeprefix(" ") for line in lines] if cells[-1].kind != "code" else lines
            cells[-1].text = "\n".join(body).strip("\n")
            cells[-1].line += next((i for i, line in enumerate(lines) if line.strip()), 0)

    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# %%"):
            close()
            cells.append(Cell("markdown" if "[markdown]" in line else "code", "", number + 1))
            lines = []
        else:
            lines.append(line)
    close()
    return [cell for cell in cells if cell.text]


def run(path: Path) -> list[Cell]:
    """Execute the code cells in order; each keeps what it printed and drew, in that order."""
    cells = read(path)
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    for cell in (c for c in cells if c.kind == "code"):
        printed = io.StringIO()

        def keep(printed: io.StringIO = printed, cell: Cell = cell) -> None:
            if text := printed.getvalue().rstrip():
                cell.shown.append(("text", text))
            printed.seek(0)
            printed.truncate()

        def watch(kind: str, what: Any, cell: Cell = cell, keep: Any = keep) -> None:
            keep()
            cell.shown.append((kind, what))

        # Blank lines before the cell, so that a traceback and inspect.getsource find the lines of the file.
        code = compile("\n" * (cell.line - 1) + cell.text, str(path), "exec")
        lib.watchers.append(watch)
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, names)
        except Exception as error:
            error.add_note(f"in the cell at {path.name}, line {cell.line}")
            raise
        finally:
            lib.watchers.remove(watch)
        keep()
    return cells


def to_markdown(cells: list[Cell], folder: Path) -> str:
    """Text, code, what it printed, what it drew. Figures are linked relative to the folder."""
    parts = []
    for cell in cells:
        if cell.kind == "markdown":
            parts.append(cell.text)
            continue
        parts.append(f"```python\n{cell.text}\n```")
        for kind, what in cell.shown:
            if kind == "figure":
                parts.append(f"![{what[1]}]({os.path.relpath(what[0], folder)})")
            else:
                parts.append(f"```{'python' if kind == 'source' else 'text'}\n{what.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def to_notebook(cells: list[Cell]) -> dict[str, Any]:
    """nbformat 4.5: the least that every reader of notebooks takes."""
    found = []
    for number, cell in enumerate(cells):
        one: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}, "source": cell.text}
        if cell.kind == "code":
            one |= {"execution_count": None, "outputs": [_output(kind, what) for kind, what in cell.shown]}
        found.append(one)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": found, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def _output(kind: str, what: Any) -> dict[str, Any]:
    if kind == "text":
        return {"output_type": "stream", "name": "stdout", "text": what + "\n"}
    if kind == "source":
        data = {"text/markdown": f"```python\n{what.rstrip()}\n```", "text/plain": what}
        return {"output_type": "display_data", "data": data, "metadata": {}}
    path, says = what
    if path.suffix == ".svg":
        data = {"image/svg+xml": path.read_text(encoding="utf-8"), "text/plain": says}
    else:
        data = {"image/png": base64.b64encode(path.read_bytes()).decode(), "text/plain": says}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def build(path: Path, out: Path, notebook: bool = False, execute: bool = True) -> list[Path]:
    """One chapter into the folder. Returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    cells = run(path) if execute else read(path)
    files = []
    if execute:
        files.append(out / f"{path.stem}.md")
        files[-1].write_text(to_markdown(cells, out), encoding="utf-8")
    if notebook:
        files.append(out / f"{path.stem}.ipynb")
        files[-1].write_text(json.dumps(to_notebook(cells), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if not (out / "lib.py").exists() or not (out / "lib.py").samefile(HERE / "lib.py"):
            shutil.copy(HERE / "lib.py", out / "lib.py")  # the first cell of a notebook imports it from the same folder
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapter", nargs="*", help="the first letters of its name; all by default")
    parser.add_argument("--out", type=Path, default=lib.out_folder())
    parser.add_argument("--notebook", action="store_true")
    parser.add_argument("--no-run", action="store_true")
    a = parser.parse_args()
    if a.no_run and not a.notebook:
        parser.error("--no-run makes notebooks: add --notebook")
    os.environ["VITKIT_LEARN_OUT"] = str(a.out)
    wanted = [p for p in chapters() if not a.chapter or any(p.name.startswith(c) for c in a.chapter)]
    if not wanted:
        parser.error(
            f"no chapter begins with {' or '.join(a.chapter)}: there are {', '.join(p.stem for p in chapters())}"
        )
    failed = []
    for path in wanted:
        began, result = time.perf_counter(), "done"
        try:
            build(path, a.out, a.notebook, not a.no_run)
        except Exception:
            traceback.print_exc()
            failed.append(path.stem)
            result = "FAILED"
        print(f"{path.stem:24} {result}  {time.perf_counter() - began:6.1f} s", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

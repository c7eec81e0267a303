"""Run folders in, one HTML file out; and the same file kept fresh while a run goes on."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from vitkit.atomic import write_atomic
from vitkit.errors import UsageError
from vitkit.report.comparison import comparison_page
from vitkit.report.run import read_run
from vitkit.report.run_report import live_page, run_page

NAME = "report.html"
COMPARISON = "comparison.html"
EVERY = 10.0  # seconds between two refreshes, at least
COST = 0.01  # of the time of a run: refreshing takes no more


def write_report(runs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Of one run `report.html` in its folder, of several `comparison.html` in this one, unless `out` says otherwise."""
    folders = [runs] if isinstance(runs, str | Path) else list(runs)
    found = [read_run(folder) for folder in folders]
    if not found:
        raise UsageError("no run to report on: name at least one run folder")
    alone = len(found) == 1
    path = Path(out or (found[0].folder / NAME if alone else COMPARISON))
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file in it, such as {path / NAME}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}; make it, or choose another --out")
    write_atomic(path, (run_page(found[0]) if alone else comparison_page(found)).encode())
    return path


class LiveReport:
    """The report of a run that goes on: its numbers and curves, written anew as they come.

    `with LiveReport() as live: train(recipe, out, on_record=live)`. Training must not feel it: it is skipped where it
    would cost more than a hundredth of the time.
    """

    def __init__(self) -> None:
        self.next = 0.0
        self.folder: Path | None = None

    def __call__(self, folder: Path) -> None:
        started = time.monotonic()
        if started < self.next:
            return
        self._write(folder, refresh=30)
        self.folder = folder
        spent = time.monotonic() - started
        self.next = started + max(EVERY, spent / COST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Of a run that ended early, what there is; the browser need not read that again and again."""
        if kind is not None and self.folder is not None:
            with contextlib.suppress(Exception):  # the error to be told is the run's
                self._write(self.folder, refresh=0)

    def _write(self, folder: Path, refresh: int) -> None:
        write_atomic(folder / NAME, live_page(read_run(folder), refresh).encode())

"""Write the report of finished runs, and the live report of a run in progress."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from vitkit.atomic import write_atomic
from vitkit.errors import UsageError
from vitkit.report.compare_runs import compare_runs
from vitkit.report.comparison import comparison_page
from vitkit.report.run_record import read_run
from vitkit.report.run_report import live_page, run_page

NAME = "report.html"
COMPARISON = "comparison.html"
MIN_INTERVAL = 10.0  # seconds between two updates
MAX_COST = 0.01  # of the run's time that updates may take


def write_report(
    runs: str | Path | Sequence[str | Path], out: str | Path | None = None, against: Sequence[str | Path] = ()
) -> Path:
    """Write `out`, by default `report.html` in the run's folder, or `comparison.html` here for several runs.

    With `against`, the runs of one recipe are compared with those of another, over their seeds.
    """
    folders = [runs] if isinstance(runs, str | Path) else list(runs)
    recipes = compare_runs(folders, against) if against else None
    found = [read_run(folder) for folder in (*folders, *against)]
    if not found:
        raise UsageError("no run given: name at least one run folder")
    alone = len(found) == 1
    path = Path(out or (found[0].folder / NAME if alone else COMPARISON))
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file in it, such as {path / NAME}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}; create it, or choose another --out")
    write_atomic(path, run_page(found[0]) if alone else comparison_page(found, recipes))
    return path


class LiveReport:
    """Updates the report of a run in progress with its latest numbers and curves.

    `with LiveReport() as live: train(recipe, out, on_record=live)`. Updates are skipped so that they take at most 1 %
    of the run's time.
    """

    def __init__(self) -> None:
        self.next_update = 0.0
        self.folder: Path | None = None

    def __call__(self, folder: Path) -> None:
        started = time.monotonic()
        if started < self.next_update:
            return
        self._write(folder, refresh=30)
        self.folder = folder
        spent = time.monotonic() - started
        self.next_update = started + max(MIN_INTERVAL, spent / MAX_COST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """After an error, write a last page that the browser does not reload."""
        if kind is not None and self.folder is not None:
            with contextlib.suppress(Exception):  # so that the error of the run is raised
                self._write(self.folder, refresh=0)

    def _write(self, folder: Path, refresh: int) -> None:
        write_atomic(folder / NAME, live_page(read_run(folder), refresh))

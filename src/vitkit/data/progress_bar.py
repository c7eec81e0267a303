"""Show progress on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(title: str, quiet: bool = False, in_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that moves a bar on stderr. The bar disappears at the end.

    Nothing is shown before the first call, or if stderr is not a terminal.
    """
    console = Console(stderr=True, highlight=False)
    if quiet or not console.is_terminal:
        yield lambda done, total: None
        return
    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)

"""Log a run: `metrics.jsonl` always, further loggers if there are some, and a progress bar in a terminal."""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vitkit.atomic import write_atomic
from vitkit.training.loggers import BackgroundLogger, MetricLogger

OnRecord = Callable[[Path], object]  # called with the run folder after metrics were recorded


class Logger:
    """Defines the methods of a logger and logs nothing. Every process but the main one uses it."""

    def record(self, step: int, **values: Any) -> None:
        """Store the metrics of a step."""

    def info(self, text: str) -> None:
        """Print one line for the user."""

    def show_progress(self, step: int, total: int, text: str) -> None:
        """Update the progress bar."""

    def drop_after(self, step: int) -> None:
        """Remove the metrics recorded after this step."""

    def close(self) -> None:
        """Close all files."""


class RunLogger(Logger):
    """Appends to `metrics.jsonl` line by line. A resumed run first drops the lines after its checkpoint."""

    def __init__(
        self,
        folder: Path,
        quiet: bool = False,
        on_record: OnRecord | None = None,
        loggers: Sequence[MetricLogger] = (),
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        self.on_record, self.callback_failed = on_record, False
        self.path = folder / "metrics.jsonl"
        self.file = self._open()
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bar: Progress | None = None
        self.loggers = [BackgroundLogger(each, folder, recipe or {}, self.info) for each in loggers]

    def _open(self) -> IO[str]:
        return open(self.path, "a", buffering=1, encoding="utf-8")

    def drop_after(self, step: int) -> None:
        lines = [line for line in self.path.read_text(encoding="utf-8").splitlines() if _step(line) <= step]
        self.file.close()
        write_atomic(self.path, "".join(line + "\n" for line in lines))
        self.file = self._open()

    def record(self, step: int, **values: Any) -> None:
        self.file.write(json.dumps({"step": step, "time": round(time.time(), 3), **values}) + "\n")
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for logger in self.loggers:
            logger.log(step, numbers)
        if self.on_record:
            try:
                self.on_record(self.path.parent)
                self.callback_failed = False
            except Exception as error:  # an observer must not stop the run
                if not self.callback_failed:
                    what = f"{type(error).__name__}: {error}"
                    self.info(f"progress callback failed and will be tried again; training continues ({what})")
                self.callback_failed = True

    def info(self, text: str) -> None:
        (self.bar.console if self.bar else self.console).print(text, markup=False, soft_wrap=True)

    def show_progress(self, step: int, total: int, text: str) -> None:
        if not self.console.is_terminal:
            return
        if self.bar is None:
            self.bar = Progress(
                TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
                TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=self.console,
            )  # fmt: skip
            self.bar.add_task("", total=total, completed=step)
            self.bar.start()
        self.bar.update(self.bar.tasks[0].id, completed=step, total=total, description=text)

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
        for logger in self.loggers:
            logger.close()
        self.file.close()


def _step(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (json.JSONDecodeError, KeyError, TypeError):  # the truncated line of a killed run
        return sys.maxsize


class StepMetrics:
    """Averages loss and metrics over the steps since the last record, and measures the speed."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.steps, self.finite, self.images = 0, 0.0, 0
        self.sums: dict[str, float] = {}

    def add(self, values: Mapping[str, float], images: int, weight: float = 1.0) -> None:
        """Count a step. It adds to the averages if its loss and gradient norm are finite."""
        self.steps, self.images = self.steps + 1, self.images + images
        if all(math.isfinite(values.get(name, 0.0)) for name in ("loss", "gradient_norm")):
            self.finite += weight
            for name, value in values.items():
                self.sums[name] = self.sums.get(name, 0.0) + weight * value
        else:
            self.sums = dict.fromkeys(values, 0.0) | self.sums

    def exclude(self, seconds: float) -> None:
        """Subtract seconds that were not spent on steps, such as those of a validation, from the measured time."""
        self.started += seconds

    @property
    def due(self) -> bool:
        seconds = time.monotonic() - self.started
        return self.steps > 0 and (seconds > 10.0 or (seconds > 1.0 and self.steps >= 10))

    @property
    def step_seconds(self) -> float:
        return (time.monotonic() - self.started) / self.steps

    def averages(self) -> dict[str, float]:
        return {name: round(value / max(self.finite, 1), 6) for name, value in self.sums.items()}

    @property
    def images_per_s(self) -> float:
        return round(self.images / (time.monotonic() - self.started), 1)

"""Log a run: `metrics.jsonl` always, TensorBoard if it is installed, and a progress bar in a terminal."""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vitkit.atomic import write_atomic

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

    def __init__(self, folder: Path, quiet: bool = False, on_record: OnRecord | None = None) -> None:
        self.on_record = on_record
        self.path = folder / "metrics.jsonl"
        self.file = self._open()
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bar: Progress | None = None
        self.tensorboard = _tensorboard(folder)

    def _open(self) -> IO[str]:
        return open(self.path, "a", buffering=1, encoding="utf-8")

    def drop_after(self, step: int) -> None:
        lines = [line for line in self.path.read_text(encoding="utf-8").splitlines() if _step(line) <= step]
        self.file.close()
        write_atomic(self.path, "".join(line + "\n" for line in lines))
        self.file = self._open()

    def record(self, step: int, **values: Any) -> None:
        self.file.write(json.dumps({"step": step, "time": round(time.time(), 3), **values}) + "\n")
        if self.tensorboard:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.tensorboard.add_scalar(name, value, step)
        if self.on_record:
            try:
                self.on_record(self.path.parent)
            except Exception as error:  # an observer must not stop the run
                self.on_record = None
                self.info(f"progress callback failed; training continues without it ({type(error).__name__}: {error})")

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
        if self.tensorboard:
            self.tensorboard.close()
        self.file.close()


def _step(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (json.JSONDecodeError, KeyError, TypeError):  # the truncated line of a killed run
        return sys.maxsize


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))


class StepMetrics:
    """Averages loss, accuracy and gradient norm over the steps since the last record, and measures the speed."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.steps, self.finite, self.images, self.sums = 0, 0, 0, [0.0, 0.0, 0.0]

    def add(self, loss: float, accuracy: float, norm: float, images: int) -> None:
        self.steps, self.images = self.steps + 1, self.images + images
        if math.isfinite(loss) and math.isfinite(norm):
            self.finite += 1
            self.sums = [a + b for a, b in zip(self.sums, (loss, accuracy, norm), strict=True)]

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

    def means(self) -> dict[str, float]:
        loss, accuracy, norm = (round(s / max(self.finite, 1), 6) for s in self.sums)
        speed = round(self.images / (time.monotonic() - self.started), 1)
        return {"loss": loss, "accuracy": accuracy, "gradient_norm": norm, "images_per_s": speed}

"""What a run says: `metrics.jsonl` always, TensorBoard where it is installed, and a live bar for people."""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vitkit.atomic import write_atomic

OnRecord = Callable[[Path], object]  # told the run folder whenever numbers were recorded


class Log(Protocol):
    def record(self, step: int, **values: Any) -> None:
        """One line of numbers, kept."""
        ...

    def say(self, text: str) -> None:
        """One line for the person who watches."""
        ...

    def advance(self, step: int, total: int, text: str) -> None:
        """Move the bar."""
        ...

    def rewind(self, step: int) -> None:
        """Forget what was recorded after this step."""
        ...

    def close(self) -> None: ...


class Silent:
    """For the processes that are not the main one."""

    def record(self, step: int, **values: Any) -> None: ...
    def say(self, text: str) -> None: ...
    def advance(self, step: int, total: int, text: str) -> None: ...
    def rewind(self, step: int) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Writes `metrics.jsonl` line by line. A resumed run first drops the lines beyond the state it resumes from."""

    def __init__(self, folder: Path, quiet: bool = False, on_record: OnRecord | None = None) -> None:
        self.on_record = on_record
        self.path = folder / "metrics.jsonl"
        self.file = open(self.path, "a", buffering=1)  # noqa: SIM115  # open as long as the run
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bar: Progress | None = None
        self.board = _tensorboard(folder)
        self.live = self.console.is_terminal

    def rewind(self, step: int) -> None:
        lines = [line for line in self.path.read_text().splitlines() if _step(line) <= step]
        self.file.close()
        write_atomic(self.path, "".join(line + "\n" for line in lines).encode())
        self.file = open(self.path, "a", buffering=1)  # noqa: SIM115  # open as long as the run

    def record(self, step: int, **values: Any) -> None:
        self.file.write(json.dumps({"step": step, "time": round(time.time(), 3), **values}) + "\n")
        if self.board:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(name, value, step)
        if self.on_record:
            try:
                self.on_record(self.path.parent)
            except Exception as error:  # of one who only watches: no reason to stop the run
                self.on_record = None
                self.say(f"the run goes on unwatched: {type(error).__name__}: {error}")

    def say(self, text: str) -> None:
        (self.bar.console if self.bar else self.console).print(text, markup=False, soft_wrap=True)

    def advance(self, step: int, total: int, text: str) -> None:
        if not self.live:
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
        if self.board:
            self.board.close()
        self.file.close()


def _step(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (json.JSONDecodeError, KeyError, TypeError):  # the half line of a run that was killed
        return sys.maxsize


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))


class Window:
    """Means over the steps since the last line of the log."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.steps, self.good, self.images, self.sums = 0, 0, 0, [0.0, 0.0, 0.0]

    def add(self, loss: float, accuracy: float, norm: float, images: int) -> None:
        self.steps, self.images = self.steps + 1, self.images + images
        if math.isfinite(loss) and math.isfinite(norm):
            self.good += 1
            self.sums = [a + b for a, b in zip(self.sums, (loss, accuracy, norm), strict=True)]

    def pause(self, seconds: float) -> None:
        """Time that went into something else, such as a validation."""
        self.started += seconds

    @property
    def due(self) -> bool:
        seconds = time.monotonic() - self.started
        return self.steps > 0 and (seconds > 10.0 or (seconds > 1.0 and self.steps >= 10))

    @property
    def step_seconds(self) -> float:
        return (time.monotonic() - self.started) / self.steps

    def means(self) -> dict[str, float]:
        loss, accuracy, norm = (round(s / max(self.good, 1), 6) for s in self.sums)
        pace = round(self.images / (time.monotonic() - self.started), 1)
        return {"loss": loss, "accuracy": accuracy, "gradient_norm": norm, "images_per_s": pace}

"""Loggers send the metrics of a run elsewhere: TensorBoard, Weights & Biases, MLflow, or your own.

A logger has three methods (`MetricLogger`). Each runs in a thread of its own (`BackgroundLogger`): one that fails is
reported and tried again, and one that hangs does not slow the run down.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from vitkit.atomic import write_atomic
from vitkit.errors import ConfigError, UnknownNameError
from vitkit.runtime.packages import require_package

MAX_PENDING = 10_000  # records that wait for a logger that fails
RETRY_SECONDS = (1.0, 60.0)  # the wait after a first failure, and the longest one
CLOSE_SECONDS = 30.0  # how long the end of a run waits for a logger


class MetricLogger(Protocol):
    """What `vitkit.train(…, loggers=[…])` takes: an object with these methods. They run in a thread of their own."""

    def start(self, folder: Path, recipe: Mapping[str, Any], /) -> None:
        """Prepare for the run in this folder. A resumed run calls it again."""

    def log(self, step: int, metrics: Mapping[str, float], /) -> None:
        """Store the metrics of a step."""

    def close(self) -> None:
        """Finish: the run has ended."""


class TensorBoardLogger:
    """Writes event files to `tensorboard/` in the run folder."""

    def start(self, folder: Path, recipe: Mapping[str, Any], /) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def log(self, step: int, metrics: Mapping[str, float], /) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class WandbLogger:
    """Logs to Weights & Biases. `options` go to `wandb.init`; a resumed run continues its own page."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def start(self, folder: Path, recipe: Mapping[str, Any], /) -> None:
        import wandb

        known = folder / "wandb-id"
        found = known.read_text(encoding="utf-8") if known.exists() else None
        given = {"project": "vitkit", "name": folder.name, "dir": str(folder), "config": dict(recipe), **self.options}
        self.run = wandb.init(id=found, resume="allow", **given)
        self.run.define_metric("*", step_metric="step")  # a resumed run may repeat steps
        write_atomic(known, self.run.id.encode())

    def log(self, step: int, metrics: Mapping[str, float], /) -> None:
        self.run.log({"step": step, **metrics})

    def close(self) -> None:
        self.run.finish()


class MlflowLogger:
    """Logs to MLflow, at the tracking URI that MLflow is set to. A resumed run continues its own MLflow run."""

    def __init__(self, experiment: str = "vitkit", uri: str | None = None) -> None:
        self.experiment, self.uri = experiment, uri

    def start(self, folder: Path, recipe: Mapping[str, Any], /) -> None:
        from mlflow.tracking import MlflowClient

        self.client, known = MlflowClient(self.uri), folder / "mlflow-id"
        if known.exists():
            self.run = known.read_text(encoding="utf-8")
            return
        experiment = self.client.get_experiment_by_name(self.experiment)
        number = experiment.experiment_id if experiment else self.client.create_experiment(self.experiment)
        self.run = self.client.create_run(number, run_name=folder.name).info.run_id
        for key, value in _flat(recipe).items():
            self.client.log_param(self.run, key, str(value)[:500])
        write_atomic(known, self.run.encode())

    def log(self, step: int, metrics: Mapping[str, float], /) -> None:
        for name, value in metrics.items():
            self.client.log_metric(self.run, name, value, step=step)

    def close(self) -> None:
        self.client.set_terminated(self.run)


LOGGERS: dict[str, tuple[str, Callable[[], MetricLogger]]] = {
    "tensorboard": ("tensorboard", TensorBoardLogger),
    "wandb": ("wandb", WandbLogger),
    "mlflow": ("mlflow", MlflowLogger),
}


def make_loggers(loggers: Sequence[str | MetricLogger]) -> list[MetricLogger]:
    """Return the loggers, those given by name with their usual settings. Raise if a package is missing.

    TensorBoard is one of them if it is installed.
    """
    given = [loggers] if isinstance(loggers, str) else list(loggers)
    if find_spec("tensorboard") and not any(each == "tensorboard" for each in given):
        given.append("tensorboard")
    found: list[MetricLogger] = []
    for each in given:
        if not isinstance(each, str):
            absent = [name for name in ("start", "log", "close") if not callable(getattr(each, name, None))]
            if absent or isinstance(each, type):
                needs = "an instance, not a class" if isinstance(each, type) else f"a method `{absent[0]}`"
                raise ConfigError(f"{each!r} is no logger: it needs {needs}")
            found.append(each)
            continue
        if each not in LOGGERS:
            raise UnknownNameError("logger", each, LOGGERS)
        package, make = LOGGERS[each]
        require_package(package, f"logging to {each}", each)
        found.append(make())
    return found


class BackgroundLogger:
    """Calls a logger in a thread. What fails is reported once, kept, and tried again with growing pauses."""

    def __init__(
        self, logger: MetricLogger, folder: Path, recipe: Mapping[str, Any], report: Callable[[str], None]
    ) -> None:
        self.logger, self.folder, self.recipe, self.report = logger, folder, recipe, report
        self.pending: deque[tuple[int, dict[str, float]]] = deque(maxlen=MAX_PENDING)
        self.changed, self.closing = threading.Condition(), False
        self.started, self.failing = False, False
        self.thread = threading.Thread(target=self._run, daemon=True, name=f"log to {self.name}")
        self.thread.start()

    @property
    def name(self) -> str:
        return type(self.logger).__name__

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        with self.changed:
            self.pending.append((step, dict(metrics)))
            self.changed.notify()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Log what is pending, and end the thread; after `timeout` seconds, give up and report what is lost."""
        with self.changed:
            self.closing = True
            self.changed.notify()
        self.thread.join(timeout)
        if self.pending:
            self.report(f"{self.name} has not logged {len(self.pending)} records: metrics.jsonl has them all")

    def _run(self) -> None:
        wait = RETRY_SECONDS[0]
        while self._next():
            try:
                self._log_first()
                wait, self.failing = RETRY_SECONDS[0], False
            except Exception as error:
                if not self.failing:
                    what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                    self.report(f"{self.name} failed and will be tried again; training continues ({what})")
                if self.closing and self.failing:  # the last attempts failed too
                    return
                self.failing = True
                self._pause(wait)
                wait = min(2 * wait, RETRY_SECONDS[1])
        if self.started:
            try:
                self.logger.close()
            except Exception as error:
                self.report(f"{self.name} failed when it was closed ({type(error).__name__}: {error})")

    def _next(self) -> bool:
        """Wait for a record. Return False if there is none and the run has ended."""
        with self.changed:
            self.changed.wait_for(lambda: self.pending or self.closing)
            return bool(self.pending)

    def _log_first(self) -> None:
        if not self.started:
            self.logger.start(self.folder, self.recipe)
            self.started = True
        self.logger.log(*self.pending[0])
        self.pending.popleft()

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self.changed:
            self.changed.wait_for(lambda: self.closing or time.monotonic() > deadline, timeout=seconds)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by full path, such as `optimizer.lr`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {prefix + key: value}
    return found

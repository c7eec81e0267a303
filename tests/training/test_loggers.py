"""Loggers: a failure is reported and tried again, a hanging one does not stop the run, and the real packages log."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import vitkit
from tests.training.small import recipe
from vitkit.errors import ConfigError, MissingExtraError, UnknownNameError
from vitkit.training import loggers
from vitkit.training.loggers import BackgroundLogger, MlflowLogger, TensorBoardLogger, WandbLogger, make_loggers
from vitkit.training.train import train


class Recorder:
    def __init__(self, failures: int = 0) -> None:
        self.failures, self.calls, self.seen, self.closed = failures, 0, [], False  # type: ignore[var-annotated]

    def start(self, folder: Path, recipe: Mapping[str, Any], /) -> None:
        self.folder, self.recipe = folder, recipe

    def log(self, step: int, metrics: Mapping[str, float], /) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError("the server is away")
        self.seen.append((step, dict(metrics)))

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "RETRY_SECONDS", (0.01, 0.02))


def test_a_run_logs_to_every_logger(tmp_path: Path) -> None:
    logger = Recorder()
    train(recipe(), tmp_path / "run", quiet=True, loggers=[logger])
    assert logger.closed
    assert logger.folder == tmp_path / "run"
    assert logger.recipe["data"] == "digits"
    assert {"loss", "accuracy", "lr"} <= logger.seen[0][1].keys() | logger.seen[-2][1].keys()
    assert "val_top1" in logger.seen[-1][1]


def test_a_failure_is_reported_once_and_nothing_is_lost(tmp_path: Path) -> None:
    logger, said = Recorder(failures=3), []
    background = BackgroundLogger(logger, tmp_path, {}, said.append)
    for step in range(4):
        background.log(step, {"loss": 1.0})
    deadline = time.monotonic() + 20
    while len(logger.seen) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    background.close()
    assert [step for step, _ in logger.seen] == [0, 1, 2, 3]
    assert said == ["Recorder failed and will be tried again; training continues (ConnectionError: the server is away)"]
    assert logger.closed


def test_what_never_works_is_reported_with_the_number_of_lost_records(tmp_path: Path) -> None:
    logger, said = Recorder(failures=10**9), []
    background = BackgroundLogger(logger, tmp_path, {}, said.append)
    for step in range(4):
        background.log(step, {"loss": 1.0})
    background.close(timeout=20)
    assert said[-1] == "Recorder has not logged 4 records: metrics.jsonl has them all"


def test_a_hanging_logger_holds_up_neither_the_run_nor_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    class Hanging(Recorder):
        def log(self, step: int, metrics: Mapping[str, float], /) -> None:
            release.wait(60)

    monkeypatch.setattr(BackgroundLogger.close, "__defaults__", (0.2,))
    result = train(recipe(), tmp_path / "run", quiet=True, loggers=[Hanging()])
    release.set()
    assert result.steps == 7


def test_names_are_checked_before_the_run_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="unknown logger 'wandbb'; did you mean 'wandb'"):
        train(recipe(), tmp_path / "run", loggers=["wandbb"])
    monkeypatch.setitem(loggers.LOGGERS, "mlflow", ("no_such_package", MlflowLogger))
    with pytest.raises(MissingExtraError, match=r"pip install 'vitkit\[mlflow\]'"):
        train(recipe(), tmp_path / "run", loggers=["mlflow"])
    assert not (tmp_path / "run").exists()
    assert vitkit.WandbLogger is WandbLogger


def test_tensorboard_writes_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'vitkit[tensorboard]'")
    assert [type(each) for each in make_loggers([])] == [TensorBoardLogger]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(recipe(), tmp_path / "run", quiet=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"loss", "val_top1"} <= set(events.Tags()["scalars"])


def test_mlflow_keeps_one_run_over_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="pip install 'vitkit[mlflow]'")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no database
    store = f"file:{tmp_path / 'mlflow'}"
    logger = MlflowLogger(uri=store)
    for step in (1, 2):
        logger.start(tmp_path, {"optimizer": {"lr": 0.1}})
        logger.log(step, {"loss": 1.0 / step})
        logger.close()
    client = MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name("vitkit").experiment_id])
    assert run.data.params == {"optimizer.lr": "0.1"}
    assert [m.step for m in client.get_metric_history(run.info.run_id, "loss")] == [1, 2]


def test_wandb_keeps_one_run_over_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="pip install 'vitkit[wandb]'")
    ids = []
    for step in (5, 3):  # a resumed run repeats steps
        logger = WandbLogger(mode="offline")
        logger.start(tmp_path, {"seed": 1})
        logger.log(step, {"loss": 0.5})
        ids.append(logger.run.id)
        logger.close()
    assert ids[0] == ids[1]
    assert list((tmp_path / "wandb").glob("offline-run-*"))


def test_what_is_no_logger_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="is no logger: it needs a method `start`"):
        make_loggers([object()])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="is no logger: it needs an instance, not a class"):
        make_loggers([Recorder])  # type: ignore[list-item]

import json
from pathlib import Path

import pytest

from vitkit.training.log import RunLogger, StepMetrics


def test_metrics_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    logger = RunLogger(tmp_path, quiet=True)
    for step in (10, 20, 30):
        logger.record(step, loss=1.0)
    logger.file.write('{"step": 4')  # killed in the middle of a line
    logger.drop_after(20)
    logger.record(30, loss=2.0)
    logger.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(e["step"], e["loss"]) for e in lines] == [(10, 1.0), (20, 1.0), (30, 2.0)]


def test_a_non_finite_step_is_left_out_of_the_means() -> None:
    metrics = StepMetrics()
    for loss in (1.0, float("nan"), 3.0):
        metrics.add({"loss": loss, "accuracy": 0.5, "gradient_norm": 2.0}, images=4)
    assert metrics.averages() == {"loss": 2.0, "accuracy": 0.5, "gradient_norm": 2.0}
    assert (metrics.steps, metrics.images) == (3, 12)


def test_a_callback_that_fails_is_reported_once_and_called_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Path] = []

    def callback(folder: Path) -> None:
        calls.append(folder)
        if len(calls) in (1, 2):
            raise OSError("the disk is full")

    logger = RunLogger(tmp_path, on_record=callback)
    for step in range(4):
        logger.record(step, loss=1.0)
    logger.close()
    assert calls == [tmp_path] * 4
    said = capsys.readouterr().err
    assert said.count("progress callback failed and will be tried again; training continues (OSError") == 1

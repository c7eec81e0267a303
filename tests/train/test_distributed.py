"""The same command under torchrun: real processes on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = ["budget.epochs=1.5", "optimizer.lr=5e-4", "config.depth=2", "budget.validate_every=0.5"]


def train(out: Path, processes: int, *changes: str) -> dict:
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    )
    words = ["train", "digits", "--out", str(out), "--json"]
    for change in (*SETTINGS, *changes):
        words += ["--set", change]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, "-m", "vitkit", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("changes", [(), ("augment.mixup=0", "loss.class_weights=balanced")], ids=str)
def test_two_processes_agree_with_one_to_rounding(tmp_path: Path, changes: tuple[str, ...]) -> None:
    one, two = (train(tmp_path / str(n), n, *changes) for n in (1, 2))
    assert one["steps"] == two["steps"]
    assert two["val"]["nll"] == pytest.approx(one["val"]["nll"], rel=2e-3)
    assert two["test"]["nll"] == pytest.approx(one["test"]["nll"], rel=2e-3)
    losses = [
        [json.loads(line)["val_loss"] for line in (tmp_path / n / "metrics.jsonl").open() if "val_loss" in line]
        for n in ("1", "2")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=2e-3)
    assert len(losses[0]) == 3


def test_a_budget_of_minutes_is_kept_by_two_processes(tmp_path: Path) -> None:
    result = train(tmp_path / "run", 2, "budget.minutes=0.15")
    assert result["seconds"] < 60
    assert result["epochs"] != 1.5, "the minutes decide, not the epochs"


def test_a_batch_that_cannot_be_shared_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="batch=31 cannot be shared by 2 processes: use a multiple of 4"):
        train(tmp_path / "run", 2, "batch=31")

"""Training runs in several processes of this machine, started by torchrun and connected by gloo."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.recorded import losses, masks, samples_by_step

SETTINGS = [
    "budget.epochs=0.5", "budget.validate_every=0.25", "batch=54", "config.depth=2", "config.stem=(8,)",
    "augment.mixup=0.5", "config.dropout=0.1", "config.attention_dropout=0.1", "config.drop_path=0.2",
    "optimizer.name=muon", "optimizer.lr=5e-4", "optimizer.ema=0.9", "machine.micro_batch=13",
    "machine.precision=fp32", "machine.compile=off", "keep.every_minutes=0", "keep.last=100",
]  # fmt: skip


ROUNDING = 2e-5  # measured: 3e-8; an image that weighs 4 % too much or too little makes 1.5e-4


def launch(processes: int) -> list[str]:
    if processes == 1:
        return []
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]


def train(out: Path, processes: int, *changes: str, words: tuple[str, ...] = ()) -> dict:
    given = [word for change in (*SETTINGS, *changes) for word in ("--set", change)]
    command = ["-m", "tests.training.recorded", f"{out}-samples", "train", "digits", "--out", str(out), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launch(processes), *command, *words, *given],
        capture_output=True, text=True, timeout=600, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def assert_same_run(folder: Path, name: str, result: dict, single: dict) -> None:
    """Assert equal samples in every step, and equal numbers up to rounding."""
    mine, theirs = (samples_by_step(folder / f"{n}-samples") for n in (name, "single"))
    assert mine == theirs
    assert masks(folder / f"{name}-samples") == masks(folder / "single-samples")
    assert len(mine) == single["steps"] == result["steps"]
    assert losses(folder / f"{name}-samples") == pytest.approx(losses(folder / "single-samples"), rel=ROUNDING)
    for split in ("val", "test"):
        assert result[split]["nll"] == pytest.approx(single[split]["nll"], rel=ROUNDING)
        assert result[split]["n"] == single[split]["n"]


HALF = 5  # the step of the first validation, whose weights are the best so far


def half_done(folder: Path, name: str) -> Path:
    """Return a copy of the sharded run as it was after the checkpoint of step HALF."""
    out = folder / name
    shutil.copytree(folder / "sharded", out)
    shutil.rmtree(out / "model")
    for path in (out / "checkpoints").glob("step-*.json"):
        if int(path.stem.removeprefix("step-")) > HALF:
            shutil.rmtree(path.with_suffix(""))
            path.unlink()
    return out

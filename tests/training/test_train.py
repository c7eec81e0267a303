"""Complete short runs on the handwritten digits: repeated, interrupted, resumed."""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.small import load_latest, recipe, run, uninterrupted_and_resumed
from vitkit.errors import UsageError
from vitkit.training.train import train


def test_equal_seeds_give_equal_weights_and_others_do_not(tmp_path: Path) -> None:
    a, b, c = (run(tmp_path / n, f"seed={s}").weights_sha256 for n, s in (("a", 1), ("b", 1), ("c", 2)))
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    "changes", [(), ("optimizer.name=muon", "optimizer.ema=0"), ("machine.precision=bf16",)], ids=str
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_and_resumed_run_gives_the_same_bits(
    tmp_path: Path, changes: tuple[str, ...], number: int
) -> None:
    uninterrupted, resumed = uninterrupted_and_resumed(recipe(*changes), tmp_path, number=number)
    assert resumed.weights_sha256 == uninterrupted.weights_sha256


def test_a_signal_to_the_process_group_saves_a_checkpoint(tmp_path: Path) -> None:
    """Shells, systemd and job schedulers signal the complete group, so the workers receive it too."""
    words = ["train", "digits", "--out", str(tmp_path / "run"), "--epochs", "500", "--set", "machine.workers=2"]
    started = subprocess.Popen(
        [sys.executable, "-m", "vitkit", *words], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and "loss" in metrics.read_text(encoding="utf-8")) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(started.pid, signal.SIGTERM)
    _, said = started.communicate(timeout=120)
    assert started.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    _, numbers = load_latest(tmp_path / "run" / "checkpoints") or pytest.fail("no checkpoint")
    assert numbers["step"] > 0


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    first = run(tmp_path / "run")
    again = run(tmp_path / "run", resume=True)
    assert again.weights_sha256 == first.weights_sha256
    assert again.steps == first.steps


def test_two_runs_that_start_together_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other run finishes before this one has read its images."""
    module = import_module("vitkit.training.train")
    original = module.open_task

    def slowly(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(module, "open_task", original)
        run(tmp_path / "run")
        return original(*given, **named)

    monkeypatch.setattr(module, "open_task", slowly)
    with pytest.raises(UsageError, match="already holds a run"):
        run(tmp_path / "run", "seed=5")
    assert (tmp_path / "run" / "result.json").exists()
    assert list((tmp_path / "run" / "checkpoints").glob("step-*.safetensors"))


def test_a_failed_start_creates_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file or folder"):
        run(tmp_path / "run", "data=nowhere")
    assert not (tmp_path / "run").exists()
    assert run(tmp_path / "run").steps == 7


@pytest.mark.parametrize("changes", [(), ("machine.threads=2", "machine.workers=1", "config.drop_path=0.0")], ids=str)
def test_random_state_and_threads_of_the_caller_are_restored(tmp_path: Path, changes: tuple[str, ...]) -> None:
    torch.manual_seed(11)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    run(tmp_path / "run", *changes)
    second = run(tmp_path / "run", *changes, resume=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    torch.manual_seed(12)
    assert run(tmp_path / "other", *changes).weights_sha256 == second.weights_sha256


def test_random_state_is_restored_after_a_failure_and_kept_within_callbacks(tmp_path: Path) -> None:
    torch.manual_seed(11)
    state, draws = torch.get_rng_state(), []
    train(recipe(), tmp_path / "run", quiet=True, on_record=lambda folder: draws.append(float(torch.rand(()))))
    assert len(draws) > 2
    assert torch.equal(torch.get_rng_state(), state)
    assert draws == [float(torch.rand(())) for _ in draws], "steps neither reset nor use the caller's generator"
    torch.set_rng_state(state)
    with pytest.raises(UsageError):
        run(tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), state)

"""Short real runs on the handwritten digits."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.small import SMALL, whole_and_resumed
from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.errors import ConfigError, UsageError, WorkError
from vitkit.training import Recipe, Result, get_recipe, train
from vitkit.training import trainer as loop
from vitkit.training.checkpoint import load_latest
from vitkit.training.log import RunLogger
from vitkit.training.loss import soft_targets, supervised_loss
from vitkit.training.run_dir import lock_run_dir, read_recipe
from vitkit.training.task import choose_batch_size, choose_model, class_weights
from vitkit.weights.load import load_model


def recipe(*changes: str, epochs: float = 0.2) -> Recipe:
    short = dataclasses.replace(get_recipe("digits"), config={**SMALL, "dropout": 0.1})
    short = dataclasses.replace(short, augment=dataclasses.replace(short.augment, mixup=0.2))
    return short.override([f"budget.epochs={epochs}", "budget.validate_every=0.1", *changes])


def run(folder: Path, *changes: str, resume: bool = False, **named: float) -> Result:
    return train(recipe(*changes, **named), folder, resume=resume, quiet=True)


def test_a_run_leaves_everything_one_needs(tmp_path: Path) -> None:
    result = run(tmp_path / "run")
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"recipe.json", "environment.json", "metrics.jsonl", "result.json", "checkpoints", "model"} <= names
    assert {"predictions-val.safetensors", "predictions-test.safetensors"} <= names
    saved = json.loads((tmp_path / "run" / "result.json").read_text())
    assert saved["weights_sha256"] == result.weights_sha256
    assert saved["val"]["n"] == 359
    assert saved["test"]["n"] == 359


def test_the_same_seed_gives_the_same_weights_and_another_one_others(tmp_path: Path) -> None:
    a, b, c = (run(tmp_path / n, f"seed={s}").weights_sha256 for n, s in (("a", 1), ("b", 1), ("c", 2)))
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    "changes", [(), ("optimizer.name=muon", "optimizer.ema=0"), ("machine.precision=bf16",)], ids=str
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_interrupted_and_resumed_ends_in_the_same_bits(
    tmp_path: Path, changes: tuple[str, ...], number: int
) -> None:
    whole, resumed = whole_and_resumed(recipe(*changes), tmp_path, number=number)
    assert resumed.weights_sha256 == whole.weights_sha256


def test_a_signal_to_all_processes_of_a_run_saves_its_state(tmp_path: Path) -> None:
    """As process groups are stopped by shells, systemd and job schedulers: the workers hear it too."""
    words = ["train", "digits", "--out", str(tmp_path / "run"), "--epochs", "500", "--set", "machine.workers=2"]
    started = subprocess.Popen(
        [sys.executable, "-m", "vitkit", *words], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and "loss" in metrics.read_text()) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(started.pid, signal.SIGTERM)
    _, said = started.communicate(timeout=120)
    assert started.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    _, numbers = load_latest(tmp_path / "run" / "checkpoints") or pytest.fail("no state")
    assert numbers["step"] > 0


def test_a_run_that_was_killed_before_its_first_step_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials of precision and pace leave nothing behind in the state."""
    automatic = ("machine.precision=auto", "machine.compile=auto")
    monkeypatch.setattr(
        "vitkit.training.autotune._seconds", lambda trial: (trial(), 1.0)[1]
    )  # the trials run, their times tie
    whole = run(tmp_path / "whole", *automatic)

    def killed(self: loop.Trainer) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "fit", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts", *automatic)
    assert run(tmp_path / "parts", *automatic, resume=True).weights_sha256 == whole.weights_sha256


def test_progressive_sizes_are_the_same_after_a_resume(tmp_path: Path) -> None:
    whole, resumed = whole_and_resumed(recipe("schedule.sizes=((0.0, 4), (0.5, 8))"), tmp_path, stopped_at=2)
    assert resumed.weights_sha256 == whole.weights_sha256


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_change_nothing(tmp_path: Path, workers: int) -> None:
    alone, helped = (run(tmp_path / str(w), f"machine.workers={w}").weights_sha256 for w in (0, workers))
    assert alone == helped


def test_weights_to_start_from_are_trained_in_training_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "first")
    modes = []
    original = loop.supervised_loss
    monkeypatch.setattr(
        loop, "supervised_loss", lambda model, *rest: (modes.append(model.training), original(model, *rest))[1]
    )
    second = dataclasses.replace(recipe(), config={}, init=str(tmp_path / "first"))
    train(second, tmp_path / "second", quiet=True)
    assert modes
    assert all(modes)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    first = run(tmp_path / "run")
    again = run(tmp_path / "run", resume=True)
    assert again.weights_sha256 == first.weights_sha256
    assert again.steps == first.steps


def test_handlers_are_restored_after_a_run(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(tmp_path / "run")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_run_works_in_a_thread_where_signals_cannot_be_caught(tmp_path: Path) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path / "run")))
    thread.start()
    thread.join()
    assert results[0].steps == 7


def test_a_run_folder_is_never_overwritten(tmp_path: Path) -> None:
    run(tmp_path / "run")
    with pytest.raises(UsageError, match="holds a run already"):
        run(tmp_path / "run")


def test_a_run_is_not_resumed_with_another_recipe(tmp_path: Path) -> None:
    run(tmp_path / "run")
    with pytest.raises(UsageError, match="--resume: batch is 16, but"):
        run(tmp_path / "run", "batch=16", resume=True)


def test_micro_batches_change_the_result_by_rounding_only(tmp_path: Path) -> None:
    options = ("optimizer.ema=0", "config.dropout=0.0", "config.drop_path=0.0", "optimizer.lr=1e-4")
    whole, parts = (run(tmp_path / n, *options, f"machine.micro_batch={m}") for n, m in (("a", 0), ("b", 8)))
    assert whole.val["nll"] == pytest.approx(parts.val["nll"], rel=1e-4)
    assert whole.weights_sha256 != parts.weights_sha256


def test_running_out_of_memory_halves_the_micro_batch_and_keeps_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = loop.supervised_loss

    def hungry(model: torch.nn.Module, images: torch.Tensor, *rest: torch.Tensor) -> object:
        if len(images) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(model, images, *rest)

    expected = run(tmp_path / "small", "machine.micro_batch=8")
    monkeypatch.setattr(loop, "supervised_loss", hungry)
    result = run(tmp_path / "run")
    assert result.steps == 7
    assert result.weights_sha256 == expected.weights_sha256


def poison(monkeypatch: pytest.MonkeyPatch, steps: range) -> None:
    original, count = loop.supervised_loss, iter(range(1000))

    def bad(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss, hits = original(*inputs)
        return (loss * float("nan") if next(count) in steps else loss), hits

    monkeypatch.setattr(loop, "supervised_loss", bad)


def test_an_update_that_is_not_finite_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, range(2, 4))
    result = run(tmp_path / "run")
    assert result.skipped_updates == 2
    assert all(p.isfinite().all() for p in load_model(tmp_path / "run").state_dict().values())


def test_many_updates_in_a_row_that_are_not_finite_stop_the_run_with_a_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, range(1, 1000))
    with pytest.raises(WorkError, match="5 steps in a row without a finite gradient"):
        run(tmp_path / "run", epochs=1.0)
    tensors, numbers = load_latest(tmp_path / "run" / "checkpoints") or pytest.fail("no state")
    assert all(t.isfinite().all() for t in tensors.values())
    assert numbers["bad_steps"] == 5


def test_a_resumed_run_does_what_its_recipe_says_outright(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the messages advise: another precision after bad steps, fewer images at a time where memory is short."""
    with monkeypatch.context() as patch:
        poison(patch, range(1, 1000))
        with pytest.raises(WorkError, match=r"--resume with machine.precision=fp32"):
            run(tmp_path / "run", "machine.precision=bf16", epochs=1.0)
    poison(monkeypatch, range(3))
    result = run(tmp_path / "run", "machine.precision=fp32", "machine.micro_batch=8", resume=True, epochs=1.0)
    _, numbers = load_latest(tmp_path / "run" / "checkpoints") or pytest.fail("no state")
    assert numbers["choice"] == {"made": True, "bf16": False, "compile": False, "micro_batch": 8}
    assert result.skipped_updates > 5, "it has as many chances as before"
    assert read_recipe(tmp_path / "run").machine.precision == "fp32", "and stays so when it is resumed again"


def test_two_runs_that_begin_together_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is through before this one has read its images."""
    original = loop.open_task

    def slowly(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(loop, "open_task", original)
        run(tmp_path / "run")
        return original(*given, **named)

    monkeypatch.setattr(loop, "open_task", slowly)
    with pytest.raises(UsageError, match="holds a run already"):
        run(tmp_path / "run", "seed=5")
    assert (tmp_path / "run" / "result.json").exists()
    assert list((tmp_path / "run" / "checkpoints").glob("step-*.safetensors"))


def test_the_last_weights_are_judged_where_time_ends_during_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = loop.Trainer._save

    def slowly(self: loop.Trainer) -> None:
        if self.state.clock.step == 3:
            self.began -= 3600
        original(self)

    monkeypatch.setattr(loop.Trainer, "_save", slowly)
    monkeypatch.setattr(loop.Trainer, "_save_is_due", lambda self: self.state.clock.step == 3)
    result = run(tmp_path / "run", "budget.minutes=60", "budget.choose=last", "budget.validate_every=0.06")
    assert result.steps == 3
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert [line["step"] for line in lines if "val_top1" in line] == [2, 3]


def test_a_run_that_has_stopped_early_takes_no_step_when_it_is_resumed(tmp_path: Path) -> None:
    changes = ("budget.early_stop=1", "optimizer.lr=1e-12", "budget.validate_every=0.03")
    ended = run(tmp_path / "run", *changes, epochs=5.0)
    again = run(tmp_path / "run", *changes, resume=True, epochs=5.0)
    assert (again.steps, again.weights_sha256) == (ended.steps, ended.weights_sha256)


def test_a_folder_without_locks_is_trained_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.lockf", refuse)
    with lock_run_dir(tmp_path / "run", timeout=0):
        assert (tmp_path / "run").is_dir()


def test_sizes_that_do_not_fit_the_patch_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"schedule\.sizes: 7 from 0\.5 on must be a multiple of the patch"):
        run(tmp_path / "run", "schedule.sizes=((0.0, 4), (0.5, 7))")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("device", ["gpu", "cuda", "xpu"])
def test_a_device_that_is_not_here_is_one_line(tmp_path: Path, device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("it is here")
    with pytest.raises(ConfigError, match=f"machine.device={device} cannot be used here"):
        run(tmp_path / "run", f"machine.device={device}")


def test_a_budget_of_minutes_is_kept(tmp_path: Path) -> None:
    result = run(tmp_path / "run", "budget.minutes=0.12", "budget.validate_every=5")
    assert 2 < result.seconds < 60
    assert result.steps > 5


@pytest.mark.parametrize(("images", "batch"), [(10, 10), (33, 16), (1079, 32), (2640, 64), (50_000, 256), (10**6, 256)])
def test_the_batch_fits_the_data_where_the_recipe_leaves_it_open(images: int, batch: int) -> None:
    assert choose_batch_size(Recipe(), images, 1) == batch


@pytest.mark.parametrize(
    ("shape", "model"),
    [((8, 8), "vit_digits_patch2_8"), ((32, 32, 3), "vit_pico_stem4_32"), ((240, 320, 3), "vit_tiny_patch16_224")],
)
def test_the_model_suits_the_images_where_the_recipe_leaves_it_open(shape: tuple[int, ...], model: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    data = Dataset("made", ["a", "b"], {"train": Split(ArrayImages(pixels, "made"), np.arange(12) % 2)})
    assert choose_model(Recipe(), data).model == model
    assert choose_model(Recipe(model="vit_nano_patch4_32"), data).model == "vit_nano_patch4_32"


def test_a_batch_is_never_larger_than_the_data() -> None:
    assert choose_batch_size(Recipe(batch=64), 33, 1) == 33
    assert choose_batch_size(Recipe(batch=64), 100, 1) == 64


def test_a_start_that_fails_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown data set"):
        run(tmp_path / "run", "data=nowhere")
    assert not (tmp_path / "run").exists()
    assert run(tmp_path / "run").steps == 7


def test_early_stop_ends_the_run(tmp_path: Path) -> None:
    result = run(
        tmp_path / "run", "budget.early_stop=2", "optimizer.lr=1e-12", "budget.validate_every=0.05", epochs=5.0
    )
    assert result.steps < 20


def test_class_weights_leave_the_best_answer_to_each_image_as_it_is() -> None:
    """Also where targets are smoothed and one class is a hundred times as frequent as another."""
    weights = class_weights(np.repeat([0, 1], [1000, 10]), 3)
    assert weights.tolist() == pytest.approx([0.505, 50.5, 0.0])
    targets = soft_targets(torch.tensor([0, 1]), 3, 0.1)
    best = targets.log()[:, :, None, None].requires_grad_()
    loss, _ = supervised_loss(nn.Flatten(), best, targets, weights)
    assert torch.autograd.grad(loss, best)[0].abs().max() < 1e-4
    each = -(targets * targets.log()).sum(dim=1)
    assert float(loss.detach()) == pytest.approx(float((each * weights[:2]).mean()))


def test_balanced_sampling_and_class_weights_run(tmp_path: Path) -> None:
    assert run(tmp_path / "run", "balanced_sampling=true", "loss.class_weights=balanced").steps == 7


def test_a_run_is_not_resumed_on_changed_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {f"{split}_images": generator.integers(0, 256, (64, 8, 8), dtype=np.uint8) for split in ("train", "val")}
    arrays |= {f"{split}_labels": np.arange(64) % 2 for split in ("train", "val")}
    np.savez(tmp_path / "data.npz", **arrays)
    run(tmp_path / "run", f"data={tmp_path / 'data.npz'}")
    run(tmp_path / "run", f"data={tmp_path / 'data.npz'}", resume=True)
    arrays["train_images"][0, 0, 0] ^= 1
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(UsageError, match="has changed since"):
        run(tmp_path / "run", f"data={tmp_path / 'data.npz'}", resume=True)


def test_a_run_is_not_resumed_with_another_architecture_of_the_same_name(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "checkpoints" / "config.json"
    before = path.read_text()
    path.write_text(before.replace('"mlp_width": 32', '"mlp_width": 48'))
    with pytest.raises(UsageError, match="another architecture under the name"):
        run(tmp_path, resume=True)
    path.write_text(before)
    run(tmp_path, resume=True)


def test_a_run_that_diverges_says_so(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"the run has diverged.*a lower optimizer\.lr"):
        run(tmp_path, "optimizer.lr=1e30", "schedule.warmup=0", "budget.validate_every=0.01")


def test_the_journal_of_a_resumed_run_has_no_line_twice(tmp_path: Path) -> None:
    journal = RunLogger(tmp_path, quiet=True)
    for step in (10, 20, 30):
        journal.record(step, loss=1.0)
    journal.file.write('{"step": 4')  # killed in the middle of a line
    journal.rewind(20)
    journal.record(30, loss=2.0)
    journal.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(e["step"], e["loss"]) for e in lines] == [(10, 1.0), (20, 1.0), (30, 2.0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("batch=-1", "batch=-1: must not be negative"),
        ("optimizer.lr=0", "optimizer.lr=0.0: must be above 0"),
        ("budget.minutes=-5", "budget.minutes=-5.0: must not be negative"),
        ("loss.label_smoothing=1.5", "label_smoothing=1.5: a share lies between 0 and 1"),
        ("budget.epochs=0", "budget.epochs=0.0: give a number above 0"),
        ("machine.workers=-1", "must not be negative"),
        ("budget.early_stop=-1", "must not be negative"),
        ("budget.minutes=1e999", "must be finite"),
        ("optimizer.betas=(0.9, 1.5)", "betas"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe().override([change])

"""Short real runs on the handwritten digits."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.training.small import load_latest, recipe, run, uninterrupted_and_resumed
from vitkit.data.training_batch import TrainingBatch
from vitkit.errors import WorkError
from vitkit.model import dropout
from vitkit.training import trainer as loop
from vitkit.training.objective import Supervised
from vitkit.training.run_dir import read_recipe
from vitkit.training.train import train
from vitkit.weights.load import load_model


def test_a_run_killed_before_its_first_step_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    automatic = ("machine.precision=auto", "machine.compile=auto")
    uninterrupted = run(tmp_path / "uninterrupted", *automatic)

    def killed(self: loop.Trainer) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "fit", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "killed", *automatic)
    assert run(tmp_path / "killed", *automatic, resume=True).weights_sha256 == uninterrupted.weights_sha256


def test_progressive_sizes_are_the_same_after_a_resume(tmp_path: Path) -> None:
    uninterrupted, resumed = uninterrupted_and_resumed(
        recipe("schedule.sizes=((0.0, 4), (0.5, 8))"), tmp_path, stopped_at=2
    )
    assert resumed.weights_sha256 == uninterrupted.weights_sha256


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_change_nothing(tmp_path: Path, workers: int) -> None:
    alone, helped = (run(tmp_path / str(w), f"machine.workers={w}").weights_sha256 for w in (0, workers))
    assert alone == helped


def test_pretrained_weights_are_trained_in_training_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "first")
    modes = []
    original = Supervised.__call__
    monkeypatch.setattr(
        Supervised,
        "__call__",
        lambda self, model, batch: (modes.append(model.training), original(self, model, batch))[1],
    )
    second = dataclasses.replace(recipe(), config={}, init=str(tmp_path / "first"))
    train(second, tmp_path / "second", quiet=True)
    assert modes
    assert all(modes)


def test_micro_batches_change_the_result_by_rounding_only(tmp_path: Path) -> None:
    options = ("optimizer.ema=0", "config.attention_dropout=0.1", "optimizer.lr=1e-4")
    whole, parts = (run(tmp_path / n, *options, f"machine.micro_batch={m}") for n, m in (("a", 0), ("b", 8)))
    assert whole.val["nll"] == pytest.approx(parts.val["nll"], rel=1e-4)
    assert whole.weights_sha256 != parts.weights_sha256


def test_images_lose_the_same_activations_in_any_micro_batch_and_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masks are compared bit by bit; `test_distributed.py` compares those of two processes."""
    draw, seen = dropout.keep_mask, set()

    def noted(seeds: torch.Tensor, shape: tuple[int, ...], rate: float) -> torch.Tensor:
        masks = draw(seeds, shape, rate)
        seen.update((int(seed), mask.numpy().tobytes()) for seed, mask in zip(seeds, masks, strict=True))
        return masks

    monkeypatch.setattr(dropout, "keep_mask", noted)
    found = []
    for name, change in enumerate(("micro_batch=4", "micro_batch=8", "threads=2", "checkpoint_blocks=true")):
        seen.clear()
        result = run(tmp_path / str(name), "config.attention_dropout=0.1", "optimizer.lr=1e-4", f"machine.{change}")
        found.append((result.val["nll"], set(seen)))
    layers, images = 1 + 2 * 4 + 2, 7 * 32
    assert len(found[0][1]) == layers * images
    for nll, masks in found[1:]:
        assert masks == found[0][1]
        assert nll == pytest.approx(found[0][0], rel=1e-4)


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Supervised.__call__

    def hungry(self: Supervised, model: torch.nn.Module, batch: TrainingBatch) -> object:
        if len(batch) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, model, batch)

    expected = run(tmp_path / "small", "machine.micro_batch=8")
    monkeypatch.setattr(Supervised, "__call__", hungry)
    result = run(tmp_path / "run")
    assert result.steps == 7
    assert result.weights_sha256 == expected.weights_sha256


def poison(monkeypatch: pytest.MonkeyPatch, steps: range) -> None:
    original, count = Supervised.__call__, iter(range(1000))

    def bad(self: Supervised, model: torch.nn.Module, batch: TrainingBatch) -> object:
        loss, metrics = original(self, model, batch)
        return (loss * float("nan") if next(count) in steps else loss), metrics

    monkeypatch.setattr(Supervised, "__call__", bad)


def test_a_non_finite_update_is_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, range(2, 4))
    result = run(tmp_path / "run")
    assert result.skipped_updates == 2
    assert all(p.isfinite().all() for p in load_model(tmp_path / "run").state_dict().values())


def test_many_non_finite_updates_stop_the_run_with_good_weights_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, range(1, 1000))
    with pytest.raises(WorkError, match="5 steps in a row without a finite gradient"):
        run(tmp_path / "run", epochs=1.0)
    tensors, numbers = load_latest(tmp_path / "run" / "checkpoints") or pytest.fail("no checkpoint")
    assert all(t.isfinite().all() for t in tensors.values())
    assert numbers["bad_steps"] == 5


def test_explicit_machine_settings_apply_to_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the error messages advise: another precision after bad steps, a smaller micro-batch if memory is short."""
    with monkeypatch.context() as patch:
        poison(patch, range(1, 1000))
        with pytest.raises(WorkError, match=r"resume with machine.precision=fp32"):
            run(tmp_path / "run", "machine.precision=bf16", epochs=1.0)
    poison(monkeypatch, range(3))
    result = run(tmp_path / "run", "machine.precision=fp32", "machine.micro_batch=8", resume=True, epochs=1.0)
    _, numbers = load_latest(tmp_path / "run" / "checkpoints") or pytest.fail("no checkpoint")
    assert numbers["choice"] == {"made": True, "bf16": False, "compile": False, "micro_batch": 8, "image_dropout": True}
    assert result.skipped_updates > 5, "it may skip as many again"
    assert read_recipe(tmp_path / "run").machine.precision == "fp32", "so a second resume keeps it"


def test_the_last_weights_are_evaluated_if_the_time_ends_during_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = loop.Trainer._save

    def slowly(self: loop.Trainer) -> None:
        if self.state.clock.step == 3:
            self.started -= 3600
        original(self)

    monkeypatch.setattr(loop.Trainer, "_save", slowly)
    monkeypatch.setattr(loop.Trainer, "_save_is_due", lambda self: self.state.clock.step == 3)
    result = run(tmp_path / "run", "budget.minutes=60", "budget.choose=last", "budget.validate_every=0.06")
    assert result.steps == 3
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open(encoding="utf-8")]
    assert [line["step"] for line in lines if "val_top1" in line] == [2, 3]


def test_a_run_that_has_stopped_early_takes_no_step_when_it_is_resumed(tmp_path: Path) -> None:
    changes = ("budget.early_stop=1", "optimizer.lr=1e-12", "budget.validate_every=0.03")
    ended = run(tmp_path / "run", *changes, epochs=5.0)
    again = run(tmp_path / "run", *changes, resume=True, epochs=5.0)
    assert (again.steps, again.weights_sha256) == (ended.steps, ended.weights_sha256)


def test_a_budget_of_minutes_is_kept(tmp_path: Path) -> None:
    result = run(tmp_path / "run", "budget.minutes=0.12", "budget.validate_every=5")
    assert 2 < result.seconds < 60
    assert result.steps > 5


def test_early_stop_ends_the_run(tmp_path: Path) -> None:
    result = run(
        tmp_path / "run", "budget.early_stop=2", "optimizer.lr=1e-12", "budget.validate_every=0.05", epochs=5.0
    )
    assert result.steps < 20


def test_a_diverged_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"the run has diverged.*a lower optimizer\.lr"):
        run(tmp_path, "optimizer.lr=1e30", "schedule.warmup=0", "budget.validate_every=0.01")

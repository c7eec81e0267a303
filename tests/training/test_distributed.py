"""The same command under torchrun: real processes on this machine, that speak through gloo."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

import vitkit
from vitkit.cli.convert import Convert
from vitkit.data.sampler import Sampler, largest_share, share
from vitkit.errors import ConfigError, WorkError
from vitkit.training import checkpoint

from .recorded import losses, samples_by_step

# Muon, the average of the weights, mixed pairs and a batch in parts: all at once, and every step is saved. Of two
# processes the first has 13 pairs and the second 14: one part more.
SETTINGS = [
    "budget.epochs=0.5", "budget.validate_every=0.25", "batch=54", "config.depth=2", "config.stem=(8,)",
    "augment.mixup=0.5",
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict:
    return train(folder / "alone", 1)


@pytest.fixture(scope="module")
def cut_in_two(folder: Path) -> dict:
    return train(folder / "cut", 2, "parallel.shard=full")


def assert_same_run(folder: Path, name: str, result: dict, alone: dict) -> None:
    """Step by step the same samples, and the same numbers within rounding."""
    mine, theirs = (samples_by_step(folder / f"{n}-samples") for n in (name, "alone"))
    assert mine == theirs
    assert len(mine) == alone["steps"] == result["steps"]
    assert losses(folder / f"{name}-samples") == pytest.approx(losses(folder / "alone-samples"), rel=ROUNDING)
    for split in ("val", "test"):
        assert result[split]["nll"] == pytest.approx(alone[split]["nll"], rel=ROUNDING)
        assert result[split]["n"] == alone[split]["n"]


def test_two_processes_with_a_whole_model_each_agree_with_one(folder: Path, alone: dict) -> None:
    assert_same_run(folder, "ddp", train(folder / "ddp", 2), alone)


def test_two_processes_with_half_of_the_model_each_agree_with_one(folder: Path, alone: dict, cut_in_two: dict) -> None:
    assert_same_run(folder, "cut", cut_in_two, alone)
    parts = sorted((folder / "cut" / "checkpoints").glob("step-*/shard-*"))
    sizes = [sum(tensor.numel() for tensor in load_file(path).values()) for path in parts[-2:]]
    assert max(sizes) < 0.7 * sum(sizes), "each process wrote about its half"


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "shard"), [(3, "full"), (4, "none")])
def test_more_processes_agree_too_also_where_the_batch_cannot_be_shared_evenly(
    folder: Path, alone: dict, processes: int, shard: str
) -> None:
    name = f"{shard}-{processes}"
    assert_same_run(folder, name, train(folder / name, processes, f"parallel.shard={shard}"), alone)


HALF = 5  # the step of the first validation, whose weights are the best so far


def half_done(folder: Path, name: str) -> Path:
    """The run as it was when its state of that step had been saved."""
    out = folder / name
    shutil.copytree(folder / "cut", out)
    shutil.rmtree(out / "model")
    for path in (out / "checkpoints").glob("step-*.json"):
        if int(path.stem.removeprefix("step-")) > HALF:
            shutil.rmtree(path.with_suffix(""))
            path.unlink()
    return out


@pytest.mark.parametrize(
    ("processes", "shard"),
    [(1, "none"), pytest.param(2, "none", marks=pytest.mark.slow), pytest.param(4, "full", marks=pytest.mark.slow)],
)
def test_what_two_processes_saved_in_parts_is_gone_on_with_by_another_number(
    folder: Path, alone: dict, cut_in_two: dict, processes: int, shard: str
) -> None:
    name = f"resumed-{processes}-{shard}"
    out = half_done(folder, name)
    result = train(out, processes, f"parallel.shard={shard}", words=("--resume",))
    assert result["val"]["nll"] == pytest.approx(alone["val"]["nll"], rel=ROUNDING)
    expected = samples_by_step(folder / "alone-samples")
    seen = samples_by_step(folder / f"{name}-samples")
    assert seen == {step: samples for step, samples in expected.items() if step >= HALF}


@pytest.mark.slow
def test_what_one_process_saved_whole_is_gone_on_with_by_two_in_parts(folder: Path, alone: dict) -> None:
    out = folder / "cut-later"
    shutil.copytree(folder / "alone", out)
    for path in (out / "checkpoints").glob("step-*"):
        if int(path.stem.removeprefix("step-")) > HALF:
            path.unlink()
    result = train(out, 2, "parallel.shard=full", words=("--resume",))
    assert result["val"]["nll"] == pytest.approx(alone["val"]["nll"], rel=ROUNDING)
    assert min(samples_by_step(folder / "cut-later-samples")) == HALF


def test_a_state_with_a_damaged_part_is_passed_over(folder: Path, cut_in_two: dict) -> None:
    states = half_done(folder, "damaged") / "checkpoints"
    part = sorted((states / f"step-{HALF:08d}").iterdir())[1]
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    found = checkpoint.find_latest(states)
    assert found is not None
    assert found.numbers["step"] == HALF - 1
    assert checkpoint.open_verified(states / f"step-{HALF:08d}.json") is None


def test_parts_that_were_being_written_when_all_was_killed_are_no_state(folder: Path, cut_in_two: dict) -> None:
    states = half_done(folder, "torn") / "checkpoints"
    (states / f"step-{HALF:08d}.json").unlink()
    os.replace(states / f"step-{HALF - 1:08d}", states / f".step-{HALF - 1:08d}.parts")
    (states / f"step-{HALF - 1:08d}.json").unlink()
    checkpoint.remove_partial(states)
    assert not list(states.glob(".step-*"))
    assert not (states / f"step-{HALF:08d}").exists()
    found = checkpoint.find_latest(states)
    assert found is not None
    assert found.numbers["step"] == HALF - 2


def test_a_run_in_parts_that_has_not_ended_is_converted_to_a_model_folder(folder: Path, cut_in_two: dict) -> None:
    run = half_done(folder, "unfinished")
    assert Convert(str(run), str(folder / "so-far"), "vitkit").run() == 0
    model = vitkit.load_model(folder / "so-far")
    best = load_file(run / "checkpoints" / f"best-{HALF:08d}.safetensors")
    assert all(torch.equal(tensor, best[name]) for name, tensor in model.state_dict().items())
    assert model.info.class_names == tuple("0123456789")


def test_one_state_in_parts_is_converted_to_a_model_folder(folder: Path, cut_in_two: dict) -> None:
    run = half_done(folder, "one-state")
    assert Convert(str(run / "checkpoints" / f"step-{HALF:08d}"), str(folder / "state"), "vitkit").run() == 0
    best = load_file(run / "checkpoints" / f"best-{HALF:08d}.safetensors")  # of the average, which this state keeps
    model = vitkit.load_model(folder / "state")
    assert all(torch.equal(tensor, best[name]) for name, tensor in model.state_dict().items())
    (run / "checkpoints" / "step-00000003.json").write_text("{}")
    with pytest.raises(WorkError, match="is not the state that its manifest names"):
        Convert(str(run / "checkpoints" / "step-00000003"), str(folder / "none"), "vitkit").run()


@pytest.mark.slow
def test_distillation_recomputed_blocks_and_blocks_compiled_one_by_one_agree(folder: Path, alone: dict) -> None:
    teacher = ("--teacher", str(folder / "alone"))
    whole, cut = (
        train(folder / f"taught-{n}", n, "parallel.shard=full", "machine.checkpoint_blocks=true",
              f"machine.compile={'on' if n > 1 else 'off'}", words=teacher)
        for n in (1, 2)
    )  # fmt: skip
    assert cut["val"]["nll"] == pytest.approx(whole["val"]["nll"], rel=ROUNDING)
    taught, untaught = (losses(folder / f"{name}-samples")[0] for name in ("taught-1", "alone"))
    assert taught < 0.7 * untaught, "half of the loss is the teacher's, who knows as little and is soon agreed with"


@pytest.mark.slow
def test_parts_that_travel_in_bfloat16_come_close(folder: Path, alone: dict) -> None:
    result = train(folder / "half", 2, "parallel.shard=full", "machine.precision=bf16")
    assert result["val"]["nll"] == pytest.approx(alone["val"]["nll"], rel=0.02)


@pytest.mark.slow
def test_a_budget_of_minutes_is_kept_by_two_processes(tmp_path: Path) -> None:
    result = train(tmp_path / "run", 2, "budget.minutes=0.15")
    assert result["seconds"] < 60
    assert result["epochs"] != 0.5, "the minutes decide, not the epochs"


def test_a_batch_that_cannot_be_shared_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="batch=2 is too small for 2 processes: use at least 4"):
        train(tmp_path / "run", 2, "batch=2")


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.integers(1, 4096), per_rank=st.floats(2.0, 4.0), count=st.integers(1, 20_000), step=st.integers(0, 50),
    seed=st.integers(0, 2**31),
)  # fmt: skip
@example(ranks=4096, per_rank=2.0, count=20_000, step=3, seed=0)
@example(ranks=4095, per_rank=2.0003, count=8191, step=1, seed=0)
def test_any_number_of_ranks_sees_the_batch_of_one_in_the_same_order(
    ranks: int, per_rank: float, count: int, step: int, seed: int
) -> None:
    plan = Sampler(count, int(ranks * per_rank), seed)
    whole = plan.at(step)
    rows = [share(plan.batch_size, (rank, ranks)) for rank in range(ranks)]
    assert [row for r in rows for row in r] == list(range(plan.batch_size))
    assert all(r.start % 2 == 0 and len(r) for r in rows), "pairs stay together, and none has nothing to do"
    assert max(map(len, rows)) <= largest_share(plan.batch_size, ranks) <= min(map(len, rows)) + 3
    for rank in {0, ranks // 2, ranks - 1}:
        assert (plan.at(step, (rank, ranks)).index == whole.index[list(rows[rank])]).all()


@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 3000), batch=st.integers(8, 600), worlds=st.lists(st.integers(1, 4096), min_size=1, max_size=6)
)
def test_every_sample_comes_once_per_epoch_however_the_world_changes_on_the_way(
    count: int, batch: int, worlds: list[int]
) -> None:
    plan, seen = Sampler(count, batch, seed=3), []
    for step in range(plan.steps(2)):
        ranks = min(worlds[step % len(worlds)], batch)
        seen += [plan.at(step, (rank, ranks)).index for rank in range(ranks)]
    stream = np.concatenate(seen)
    for epoch in range(2):
        assert (np.sort(stream[epoch * count : (epoch + 1) * count]) == np.arange(count)).all()


def test_more_ranks_than_samples_in_a_batch_is_an_error() -> None:
    with pytest.raises(ConfigError, match="batch=3 is too small for 4 processes"):
        Sampler(100, 3).at(0, (0, 4))

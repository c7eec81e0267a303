"""Sharded models give the numbers of a single process, and resume with any number of processes."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.training.multi_process import HALF, ROUNDING, assert_same_run, half_done
from tests.training.multi_process import train as train_processes
from tests.training.recorded import losses, samples_by_step


def test_two_sharded_processes_equal_one_process(folder: Path, single: dict, sharded: dict) -> None:
    assert_same_run(folder, "sharded", sharded, single)
    parts = sorted((folder / "sharded" / "checkpoints").glob("step-*/shard-*"))
    sizes = [sum(tensor.numel() for tensor in load_file(path).values()) for path in parts[-2:]]
    assert max(sizes) < 0.7 * sum(sizes), "each process wrote about its half"


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "shard"), [(3, "full"), (4, "none")])
def test_more_processes_agree_even_if_the_batch_cannot_be_divided_evenly(
    folder: Path, single: dict, processes: int, shard: str
) -> None:
    name = f"{shard}-{processes}"
    assert_same_run(folder, name, train_processes(folder / name, processes, f"parallel.shard={shard}"), single)


@pytest.mark.parametrize(
    ("processes", "shard"),
    [(1, "none"), pytest.param(2, "none", marks=pytest.mark.slow), pytest.param(4, "full", marks=pytest.mark.slow)],
)
def test_a_sharded_checkpoint_of_two_processes_resumes_with_another_number(
    folder: Path, single: dict, sharded: dict, processes: int, shard: str
) -> None:
    name = f"resumed-{processes}-{shard}"
    out = half_done(folder, name)
    result = train_processes(out, processes, f"parallel.shard={shard}", words=("--resume",))
    assert result["val"]["nll"] == pytest.approx(single["val"]["nll"], rel=ROUNDING)
    expected = samples_by_step(folder / "single-samples")
    seen = samples_by_step(folder / f"{name}-samples")
    assert seen == {step: samples for step, samples in expected.items() if step >= HALF}


@pytest.mark.slow
def test_a_checkpoint_of_one_process_resumes_sharded_over_two(folder: Path, single: dict) -> None:
    out = folder / "cut-later"
    shutil.copytree(folder / "single", out)
    for path in (out / "checkpoints").glob("step-*"):
        if int(path.stem.removeprefix("step-")) > HALF:
            path.unlink()
    result = train_processes(out, 2, "parallel.shard=full", words=("--resume",))
    assert result["val"]["nll"] == pytest.approx(single["val"]["nll"], rel=ROUNDING)
    assert min(samples_by_step(folder / "cut-later-samples")) == HALF


@pytest.mark.slow
def test_sharded_distillation_with_checkpointed_and_compiled_blocks_agrees(folder: Path, single: dict) -> None:
    teacher = ("--teacher", str(folder / "single"))
    whole, cut = (
        train_processes(folder / f"taught-{n}", n, "parallel.shard=full", "machine.checkpoint_blocks=true",
              f"machine.compile={'on' if n > 1 else 'off'}", words=teacher)
        for n in (1, 2)
    )  # fmt: skip
    assert cut["val"]["nll"] == pytest.approx(whole["val"]["nll"], rel=ROUNDING)
    taught, untaught = (losses(folder / f"{name}-samples")[0] for name in ("taught-1", "single"))
    assert taught < 0.7 * untaught, "half of the loss is the teacher's, who knows as little and is soon agreed with"


@pytest.mark.slow
def test_sharded_bf16_is_close_to_fp32(folder: Path, single: dict) -> None:
    result = train_processes(folder / "half", 2, "parallel.shard=full", "machine.precision=bf16")
    assert result["val"]["nll"] == pytest.approx(single["val"]["nll"], rel=0.02)

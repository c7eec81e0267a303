"""Runs in several processes equal those of one: same samples, same numbers up to rounding."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.training.multi_process import assert_same_run
from tests.training.multi_process import train as train_processes
from tests.training.small import run
from vitkit.data.sampler import Sampler, max_rank_rows, rank_rows
from vitkit.errors import ConfigError

# Muon, the average of the weights, mixed pairs and a batch in parts: all at once, and every step is saved. Of two
# processes the first has 13 pairs and the second 14: one part more.


def test_ddp_with_two_processes_equals_one_process(folder: Path, single: dict) -> None:
    assert_same_run(folder, "ddp", train_processes(folder / "ddp", 2), single)


@pytest.mark.slow
def test_a_budget_of_minutes_is_kept_by_two_processes(tmp_path: Path) -> None:
    result = train_processes(tmp_path / "run", 2, "budget.minutes=0.15")
    assert result["seconds"] < 60
    assert result["epochs"] != 0.5, "the minutes decide, not the epochs"


def test_a_batch_too_small_for_the_processes_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="batch=2 is too small for 2 processes: use at least 4"):
        train_processes(tmp_path / "run", 2, "batch=2")


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.integers(1, 4096), per_rank=st.floats(2.0, 4.0), count=st.integers(1, 20_000), step=st.integers(0, 50),
    seed=st.integers(0, 2**31),
)  # fmt: skip
@example(ranks=4096, per_rank=2.0, count=20_000, step=3, seed=0)
@example(ranks=4095, per_rank=2.0003, count=8191, step=1, seed=0)
def test_any_number_of_ranks_sees_the_batches_of_one_rank_in_the_same_order(
    ranks: int, per_rank: float, count: int, step: int, seed: int
) -> None:
    sampler = Sampler(count, int(ranks * per_rank), seed)
    whole = sampler.at(step)
    rows = [rank_rows(sampler.batch_size, (rank, ranks)) for rank in range(ranks)]
    assert [row for r in rows for row in r] == list(range(sampler.batch_size))
    assert all(r.start % 2 == 0 and len(r) for r in rows), "pairs stay together, and every rank has images"
    assert max(map(len, rows)) <= max_rank_rows(sampler.batch_size, ranks) <= min(map(len, rows)) + 3
    for rank in {0, ranks // 2, ranks - 1}:
        assert (sampler.at(step, (rank, ranks)).index == whole.index[list(rows[rank])]).all()


@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 3000), batch=st.integers(8, 600), worlds=st.lists(st.integers(1, 4096), min_size=1, max_size=6)
)
def test_every_sample_comes_once_per_epoch_even_if_the_number_of_ranks_changes(
    count: int, batch: int, worlds: list[int]
) -> None:
    sampler, seen = Sampler(count, batch, seed=3), []
    for step in range(sampler.steps(2)):
        ranks = min(worlds[step % len(worlds)], batch)
        seen += [sampler.at(step, (rank, ranks)).index for rank in range(ranks)]
    stream = np.concatenate(seen)
    for epoch in range(2):
        assert (np.sort(stream[epoch * count : (epoch + 1) * count]) == np.arange(count)).all()


def test_more_ranks_than_samples_in_a_batch_is_an_error() -> None:
    with pytest.raises(ConfigError, match="batch=3 is too small for 4 processes"):
        Sampler(100, 3).at(0, (0, 4))


@pytest.mark.parametrize("device", ["gpu", "cuda", "xpu"])
def test_an_unavailable_device_is_one_clear_error(tmp_path: Path, device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("a GPU is available")
    with pytest.raises(ConfigError, match=f"machine.device={device} is not available"):
        run(tmp_path / "run", f"machine.device={device}")

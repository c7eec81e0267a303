"""The order of samples in shards, as a function: every sample once per epoch, whoever asks, and never far apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitkit.data.dataset import Split
from vitkit.data.rng import permutation
from vitkit.data.sampler import Sampler, ShuffleWindows, shuffle_windows
from vitkit.data.shards.index import PackedStrings, SampleTable, Shard
from vitkit.data.shards.reader import ShardImages


def make(counts: list[int], limit: int, seed: int = 0) -> ShuffleWindows:
    """Chunks of so many samples of one byte each; which sample lies in which chunk is random."""
    starts = np.r_[0, np.cumsum(counts)]
    members = np.random.default_rng(seed).permutation(starts[-1])
    return ShuffleWindows(members, starts, np.array(counts), limit)


uneven = st.lists(st.integers(1, 30), min_size=1, max_size=20)


@given(uneven, st.integers(1, 200), st.integers(0, 99), st.integers(0, 5))
def test_every_epoch_shows_every_sample_once(counts: list[int], limit: int, seed: int, epoch: int) -> None:
    total = sum(counts)
    order = make(counts, limit).at(seed, epoch, np.arange(total))
    assert sorted(order) == list(range(total))


@given(uneven, st.integers(1, 200), st.integers(1, 6), st.integers(1, 5), st.integers(0, 40))
def test_a_batch_is_the_same_for_any_number_of_ranks_and_from_any_step(
    counts: list[int], limit: int, ranks: int, share: int, step: int
) -> None:
    """Uneven shards, a batch across the end of an epoch: the ranks' parts laid side by side are the whole batch."""
    total, windows = sum(counts), make(counts, limit)
    whole = Sampler(total, ranks * share, seed=5, windows=windows).at(step)
    parts = [Sampler(total, ranks * share, seed=5, windows=windows).at(step, (r, ranks)) for r in range(ranks)]
    assert np.concatenate([p.index for p in parts]).tolist() == whole.index.tolist()
    assert all(len(p) for p in parts)  # no rank is left waiting for another


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64, 512, 4096])
def test_4096_ranks_see_each_sample_of_an_epoch_once(ranks: int) -> None:
    batch, counts = 4096 * 3, [97, 1000, 5000, 3, 12_000, 6476]
    plan = Sampler(sum(counts), batch, seed=1, windows=make(counts, 4000))
    assert plan.count == 2 * batch
    seen = np.concatenate([plan.at(s, (r, ranks)).index for s in range(2) for r in range(ranks)])
    assert np.array_equal(np.sort(seen), np.arange(plan.count))


def test_one_window_is_the_plain_shuffle() -> None:
    counts = [7, 20, 3]
    windowed = make(counts, limit=30).at(3, 2, np.arange(30))
    assert windowed.tolist() == permutation(3, 2, 30).tolist()


def test_epochs_and_seeds_differ_in_chunks_and_within() -> None:
    windows, places = make([10] * 50, limit=60), np.arange(500)
    orders = {tuple(windows.at(seed, epoch, places)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


@given(uneven, st.integers(1, 100))
def test_what_is_read_in_a_row_lies_in_a_window_of_chunks(counts: list[int], limit: int) -> None:
    """While a window's samples are read, its chunks are all that has to be held: the limit and one chunk over it."""
    windows = make(counts, limit)
    chunk = np.empty(sum(counts), int)
    chunk[windows.members] = np.repeat(np.arange(len(counts)), counts)
    order = chunk[windows.at(0, 0, np.arange(sum(counts)))]
    first = {c: np.flatnonzero(order == c)[0] for c in range(len(counts))}
    last = {c: np.flatnonzero(order == c)[-1] for c in range(len(counts))}
    for place in range(len(order)):
        open_now = [c for c in first if first[c] <= place <= last[c]]
        assert sum(counts[c] for c in open_now) <= limit + max(counts)


def shards(column: str, size: int, monkeypatch: pytest.MonkeyPatch) -> Split:
    monkeypatch.setattr("vitkit.data.shards.reader.TAR_WINDOW", 1000)
    monkeypatch.setattr("vitkit.data.shards.reader.TAR_CHUNK", 100)
    monkeypatch.setattr("vitkit.data.shards.reader.PARQUET_WINDOW", 1000)
    count = 40
    files = [Shard(f"{i}", count // 2, 10, groups=(4, 10, 6)) for i in range(2)]
    place = np.tile(np.arange(count // 2), 2) * (1 if column else size)
    rows = SampleTable(np.repeat([0, 1], count // 2), place, np.full(count, size), PackedStrings.of(["x"] * count))
    return Split(ShardImages(files, rows, column), np.zeros(count, np.int64))


@pytest.mark.parametrize(("column", "chunks"), [("image", 6), ("", 2 * 8)])
def test_only_what_is_larger_than_a_window_is_cut_into_windows(
    column: str, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shuffle_windows(shards(column, 25, monkeypatch)) is None
    windows = shuffle_windows(shards(column, 40, monkeypatch))
    assert windows is not None
    assert len(windows.sizes) == chunks  # row groups, or runs of 100 bytes in 2 tars of 800
    assert windows.sizes.sum() == 1600
    part = shards(column, 40, monkeypatch).subset(np.arange(1, 40, 2)).subset(np.arange(1, 20))
    assert shuffle_windows(part) is None  # 760 bytes of it are left

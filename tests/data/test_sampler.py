"""Sample order is a pure function: every sample once per epoch, for any number of ranks and from any step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from vitkit.data.dataset import Split
from vitkit.data.rng import SampleKeys, permutation
from vitkit.data.sampler import Sampler, ShuffleWindows, shuffle_windows
from vitkit.data.shards.index import PackedStrings, SampleTable, Shard
from vitkit.data.shards.reader import ShardImages
from vitkit.errors import ConfigError

COUNTS, SHARES, RANKS = st.integers(1, 200), st.integers(1, 40), st.integers(1, 5)
FIELDS = ("epoch", "index", "repeat")


def stream(sampler: Sampler, steps: int, ranks: int = 1) -> dict[str, np.ndarray]:
    """The samples of the first steps, in order, put together from all ranks."""
    parts = [sampler.at(step, (rank, ranks)) for step in range(steps) for rank in range(ranks)]
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS}


@given(count=COUNTS, share=SHARES, ranks=RANKS, seed=st.integers(0, 100))
def test_every_sample_comes_exactly_once_per_epoch_and_every_batch_is_full(count, share, ranks, seed):
    sampler = Sampler(count, batch_size=share * ranks, seed=seed)
    seen = stream(sampler, sampler.steps(3), ranks)
    assert len(seen["index"]) == sampler.steps(3) * sampler.batch_size
    assert (np.diff(seen["epoch"]) >= 0).all()
    assert (seen["repeat"] == 0).all()
    for epoch in range(3):
        assert sorted(seen["index"][seen["epoch"] == epoch]) == list(range(count))


@given(
    count=COUNTS,
    share=SHARES,
    ranks=RANKS,
    step=st.integers(0, 1000),
    repeats=st.integers(1, 4),
    balanced=st.booleans(),
)
def test_the_parts_of_the_ranks_are_the_batch_in_order(count, share, ranks, step, repeats, balanced):
    weights = 1.0 + np.arange(count) if balanced else None
    sampler = Sampler(count, share * ranks, seed=7, repeats=repeats, weights=weights)
    whole, parts = sampler.at(step), [sampler.at(step, (rank, ranks)) for rank in range(ranks)]
    assert len(whole) == sampler.batch_size
    for name in FIELDS:
        assert (np.concatenate([getattr(part, name) for part in parts]) == getattr(whole, name)).all()
    assert (np.concatenate([part.uniform("crop") for part in parts]) == whole.uniform("crop")).all()


def test_a_batch_smaller_than_the_number_of_ranks_is_an_error():
    with pytest.raises(ConfigError, match="batch=10 is too small for 11 processes: use at least 22"):
        Sampler(100, 10).at(0, (0, 11))


def test_a_step_does_not_depend_on_the_steps_before_it():
    late = Sampler(100, 16, seed=1).at(500)
    again = Sampler(100, 16, seed=1)
    for step in range(500):
        again.at(step)
    assert (again.at(500).index == late.index).all()
    assert (Sampler(100, 16, seed=2).at(500).index != late.index).any()


def test_order_and_draws_differ_between_epochs():
    sampler = Sampler(64, 64)
    assert (sampler.at(0).index != sampler.at(1).index).any()
    by_sample = [dict(zip(p.index, p.uniform("crop"), strict=True)) for p in (sampler.at(0), sampler.at(1))]
    assert all(by_sample[0][i] != by_sample[1][i] for i in range(64))


@pytest.mark.parametrize(
    ("count", "batch", "epochs", "steps"),
    [(100, 10, 1, 10), (100, 10, 1.1, 11), (101, 10, 1, 11), (50_000, 256, 3, 586), (3, 10, 1, 1), (10, 10, 0.01, 1)],
)
def test_steps_show_at_least_the_requested_epochs(count, batch, epochs, steps):
    assert Sampler(count, batch).steps(epochs) == steps


@given(count=COUNTS, batch=SHARES, epochs=st.integers(1, 300))
def test_steps_are_the_minimum(count, batch, epochs):
    steps = Sampler(count, batch).steps(epochs)
    assert (steps - 1) * batch < epochs * count <= steps * batch


@given(count=st.integers(2, 200), repeats=st.integers(2, 5), seed=st.integers(0, 100))
def test_repeats_show_fewer_samples_with_different_draws(count, repeats, seed):
    keys = Sampler(count, batch_size=count, seed=seed, repeats=repeats).at(0)
    times = np.bincount(keys.index)
    assert times.max() <= repeats
    assert (times > 0).sum() <= 2 * -(-count // (2 * repeats))
    for index in np.unique(keys.index):
        assert sorted(keys.repeat[keys.index == index]) == list(range(times[index]))
    assert len(np.unique(keys.uniform("crop"))) == count


@given(count=st.integers(2, 200), batch=st.integers(1, 20), repeats=st.integers(1, 5), step=st.integers(0, 20))
def test_neighbours_in_an_epoch_are_never_two_views_of_one_sample(count, batch, repeats, step):
    """They are mixed with each other, which would do nothing."""
    keys = Sampler(count, 2 * batch, repeats=repeats).at(step)
    same_epoch = keys.epoch[1:] == keys.epoch[:-1]
    assert (keys.index[1:] != keys.index[:-1])[same_epoch].all()


def test_views_of_a_sample_are_in_one_batch():
    keys = Sampler(960, batch_size=96, repeats=3).at(4)
    assert (np.unique(keys.index, return_counts=True)[1] == 3).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_weights_set_how_often_a_sample_comes(dtype):
    weights = np.array([1, 2, 0, 5, 0], dtype=dtype).repeat(200)
    seen = stream(Sampler(1000, batch_size=100, seed=3, weights=weights), steps=100)["index"]
    counts = np.bincount(seen // 200, minlength=5)
    assert counts[[2, 4]].sum() == 0
    assert chisquare(counts[[0, 1, 3]], len(seen) * np.array([1, 2, 5]) / 8).pvalue > 1e-3
    within = np.bincount(seen, minlength=1000)[600:800]
    assert chisquare(within).pvalue > 1e-3


@pytest.mark.parametrize("repeats", [1, 3])
def test_repeated_samples_of_a_weighted_epoch_have_different_draws(repeats):
    keys: SampleKeys = Sampler(300, batch_size=300, weights=np.ones(300), repeats=repeats).at(0)
    assert len(np.unique(keys.index)) < 270 / repeats  # with replacement
    assert len(np.unique(keys.uniform("crop"))) == 300
    for index in np.unique(keys.index):
        assert keys.repeat[keys.index == index].tolist() == list(range((keys.index == index).sum()))


# ── Windows of shards


def make_windows(counts: list[int], limit: int, seed: int = 0) -> ShuffleWindows:
    """Return windows of chunks with these numbers of samples, of one byte each, assigned at random."""
    starts = np.r_[0, np.cumsum(counts)]
    members = np.random.default_rng(seed).permutation(starts[-1])
    return ShuffleWindows(members, starts, np.array(counts), limit)


uneven = st.lists(st.integers(1, 30), min_size=1, max_size=20)


@given(uneven, st.integers(1, 200), st.integers(0, 99), st.integers(0, 5))
def test_windows_show_every_sample_once_per_epoch(counts: list[int], limit: int, seed: int, epoch: int) -> None:
    total = sum(counts)
    order = make_windows(counts, limit).at(seed, epoch, np.arange(total))
    assert sorted(order) == list(range(total))


@given(uneven, st.integers(1, 200), st.integers(1, 6), st.integers(1, 5), st.integers(0, 40))
def test_a_windowed_batch_is_the_same_for_any_number_of_ranks(
    counts: list[int], limit: int, ranks: int, share: int, step: int
) -> None:
    """The parts of the ranks make up the batch, also for uneven shards and across the end of an epoch."""
    total, windows = sum(counts), make_windows(counts, limit)
    whole = Sampler(total, ranks * share, seed=5, windows=windows).at(step)
    parts = [Sampler(total, ranks * share, seed=5, windows=windows).at(step, (r, ranks)) for r in range(ranks)]
    assert np.concatenate([p.index for p in parts]).tolist() == whole.index.tolist()
    assert all(len(p) for p in parts)  # no rank is without samples


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64, 512, 4096])
def test_4096_ranks_see_each_sample_of_an_epoch_once(ranks: int) -> None:
    batch, counts = 4096 * 3, [97, 1000, 5000, 3, 12_000, 6476]
    sampler = Sampler(sum(counts), batch, seed=1, windows=make_windows(counts, 4000))
    assert sampler.count == 2 * batch
    seen = np.concatenate([sampler.at(s, (r, ranks)).index for s in range(2) for r in range(ranks)])
    assert np.array_equal(np.sort(seen), np.arange(sampler.count))


def test_one_window_is_the_plain_permutation() -> None:
    counts = [7, 20, 3]
    windowed = make_windows(counts, limit=30).at(3, 2, np.arange(30))
    assert windowed.tolist() == permutation(3, 2, 30).tolist()


def test_windowed_order_differs_between_epochs_and_seeds() -> None:
    windows, places = make_windows([10] * 50, limit=60), np.arange(500)
    orders = {tuple(windows.at(seed, epoch, places)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


@given(uneven, st.integers(1, 100))
def test_consecutive_samples_are_in_one_window_of_chunks(counts: list[int], limit: int) -> None:
    """While a window is read, only its chunks have to be held: at most the limit and one more chunk."""
    windows = make_windows(counts, limit)
    chunk = np.empty(sum(counts), int)
    chunk[windows.members] = np.repeat(np.arange(len(counts)), counts)
    order = chunk[windows.at(0, 0, np.arange(sum(counts)))]
    first = {c: np.flatnonzero(order == c)[0] for c in range(len(counts))}
    last = {c: np.flatnonzero(order == c)[-1] for c in range(len(counts))}
    for place in range(len(order)):
        open_now = [c for c in first if first[c] <= place <= last[c]]
        assert sum(counts[c] for c in open_now) <= limit + max(counts)


def split_in_shards(column: str, size: int, monkeypatch: pytest.MonkeyPatch) -> Split:
    monkeypatch.setattr("vitkit.data.shards.reader.TAR_WINDOW", 1000)
    monkeypatch.setattr("vitkit.data.shards.reader.TAR_CHUNK", 100)
    monkeypatch.setattr("vitkit.data.shards.reader.PARQUET_WINDOW", 1000)
    count = 40
    files = [Shard(f"{i}", count // 2, 10, groups=(4, 10, 6)) for i in range(2)]
    place = np.tile(np.arange(count // 2), 2) * (1 if column else size)
    rows = SampleTable(np.repeat([0, 1], count // 2), place, np.full(count, size), PackedStrings.of(["x"] * count))
    return Split(ShardImages(files, rows, column), np.zeros(count, np.int64))


@pytest.mark.parametrize(("column", "chunks"), [("image", 6), ("", 2 * 8)])
def test_only_a_split_larger_than_a_window_has_windows(
    column: str, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shuffle_windows(split_in_shards(column, 25, monkeypatch)) is None
    windows = shuffle_windows(split_in_shards(column, 40, monkeypatch))
    assert windows is not None
    assert len(windows.sizes) == chunks  # row groups, or runs of 100 bytes in 2 tars of 800
    assert windows.sizes.sum() == 1600
    part = split_in_shards(column, 40, monkeypatch).subset(np.arange(1, 40, 2)).subset(np.arange(1, 20))
    assert shuffle_windows(part) is None  # it has 760 bytes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from vitkit.data.rng import SampleKeys
from vitkit.data.sampler import Sampler
from vitkit.errors import ConfigError

COUNTS, SHARES, RANKS = st.integers(1, 200), st.integers(1, 40), st.integers(1, 5)
FIELDS = ("epoch", "index", "repeat")


def stream(plan: Sampler, steps: int, ranks: int = 1) -> dict[str, np.ndarray]:
    """The samples of the first steps, in order, put together from all ranks."""
    parts = [plan.at(step, (rank, ranks)) for step in range(steps) for rank in range(ranks)]
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS}


@given(count=COUNTS, share=SHARES, ranks=RANKS, seed=st.integers(0, 100))
def test_every_sample_comes_exactly_once_per_epoch_and_every_batch_is_full(count, share, ranks, seed):
    plan = Sampler(count, batch_size=share * ranks, seed=seed)
    seen = stream(plan, plan.steps(3), ranks)
    assert len(seen["index"]) == plan.steps(3) * plan.batch_size
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
def test_the_shares_of_the_ranks_are_the_batch_in_order(count, share, ranks, step, repeats, balanced):
    weights = 1.0 + np.arange(count) if balanced else None
    plan = Sampler(count, share * ranks, seed=7, repeats=repeats, weights=weights)
    whole, parts = plan.at(step), [plan.at(step, (rank, ranks)) for rank in range(ranks)]
    assert len(whole) == plan.batch_size
    for name in FIELDS:
        assert (np.concatenate([getattr(part, name) for part in parts]) == getattr(whole, name)).all()
    assert (np.concatenate([part.uniform("crop") for part in parts]) == whole.uniform("crop")).all()


def test_a_batch_that_cannot_be_shared_is_an_error_not_a_smaller_batch():
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
    plan = Sampler(64, 64)
    assert (plan.at(0).index != plan.at(1).index).any()
    by_sample = [dict(zip(p.index, p.uniform("crop"), strict=True)) for p in (plan.at(0), plan.at(1))]
    assert all(by_sample[0][i] != by_sample[1][i] for i in range(64))


@pytest.mark.parametrize(
    ("count", "batch", "epochs", "steps"),
    [(100, 10, 1, 10), (100, 10, 1.1, 11), (101, 10, 1, 11), (50_000, 256, 3, 586), (3, 10, 1, 1), (10, 10, 0.01, 1)],
)
def test_steps_show_at_least_the_epochs_asked_for(count, batch, epochs, steps):
    assert Sampler(count, batch).steps(epochs) == steps


@given(count=COUNTS, batch=SHARES, epochs=st.integers(1, 300))
def test_steps_are_the_fewest_that_do(count, batch, epochs):
    steps = Sampler(count, batch).steps(epochs)
    assert (steps - 1) * batch < epochs * count <= steps * batch


@given(count=st.integers(2, 200), repeats=st.integers(2, 5), seed=st.integers(0, 100))
def test_repeats_show_fewer_samples_with_other_draws_each_time(count, repeats, seed):
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
def test_weights_say_how_often_a_sample_comes(dtype):
    weights = np.array([1, 2, 0, 5, 0], dtype=dtype).repeat(200)
    seen = stream(Sampler(1000, batch_size=100, seed=3, weights=weights), steps=100)["index"]
    counts = np.bincount(seen // 200, minlength=5)
    assert counts[[2, 4]].sum() == 0
    assert chisquare(counts[[0, 1, 3]], len(seen) * np.array([1, 2, 5]) / 8).pvalue > 1e-3
    within = np.bincount(seen, minlength=1000)[600:800]
    assert chisquare(within).pvalue > 1e-3


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_sample_that_comes_twice_in_a_weighted_epoch_draws_anew(repeats):
    keys: SampleKeys = Sampler(300, batch_size=300, weights=np.ones(300), repeats=repeats).at(0)
    assert len(np.unique(keys.index)) < 270 / repeats  # with replacement
    assert len(np.unique(keys.uniform("crop"))) == 300
    for index in np.unique(keys.index):
        assert keys.repeat[keys.index == index].tolist() == list(range((keys.index == index).sum()))

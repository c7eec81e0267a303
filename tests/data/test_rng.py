import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, pearsonr

from vitkit.data.rng import SampleKeys, permutation, uniform

SEEDS = st.integers(-(2**63), 2**63 - 1)


def keys_of(count: int, seed: int = 0, epoch: int = 0, repeat: int = 0) -> SampleKeys:
    return SampleKeys(seed, np.full(count, epoch), np.arange(count), np.full(count, repeat))


def test_the_numbers_never_change_between_machines_and_versions():
    """A run that is resumed with a later version must draw the same numbers."""
    assert uniform("flip", 0, np.arange(3)).tolist() == [0.6380159645632559, 0.6981773281912852, 0.555879796049893]
    assert permutation(0, 0, 8).tolist() == [3, 5, 6, 4, 7, 0, 1, 2]


@given(seed=SEEDS, epoch=st.integers(0, 10**6))
def test_draws_are_a_function_of_their_keys_and_lie_below_one(seed, epoch):
    draws = uniform("crop", seed, epoch, np.arange(100))
    assert (draws == uniform("crop", seed, epoch, np.arange(100))).all()
    assert ((draws >= 0) & (draws < 1)).all()
    assert (draws != uniform("crop", seed, epoch + 1, np.arange(100))).all()
    assert (draws != uniform("flip", seed, epoch, np.arange(100))).all()


@pytest.mark.parametrize("seed", [0, 1, 2**62])
def test_draws_are_uniform(seed):
    assert kstest(uniform("crop", seed, 0, np.arange(20_000)), "uniform").pvalue > 1e-3
    assert kstest(keys_of(100, seed).uniform("crop", 200).ravel(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("other", [dict(seed=1), dict(epoch=1), dict(repeat=1), dict(purpose="flip")], ids=str)
def test_draws_with_different_keys_are_independent(other):
    purpose = other.pop("purpose", "crop")
    for count in (None, 1):
        one = keys_of(20_000).uniform("crop", count).ravel()
        two = keys_of(20_000, **other).uniform(purpose, count).ravel()
        assert pearsonr(one, two).pvalue > 1e-3
        assert kstest((one + two) % 1, "uniform").pvalue > 1e-3


def test_neighbours_and_the_numbers_of_one_sample_are_independent():
    draws = keys_of(20_000).uniform("crop", 2)
    assert pearsonr(*draws.T).pvalue > 1e-3
    assert pearsonr(draws[1:, 0], draws[:-1, 0]).pvalue > 1e-3


@given(start=st.integers(0, 20), stop=st.integers(0, 20), step=st.integers(1, 3), count=st.none() | st.integers(1, 5))
def test_a_slice_of_the_keys_draws_the_same_numbers(start, stop, step, count):
    keys, rows = keys_of(20, seed=3, epoch=2), slice(start, stop, step)
    assert (keys[rows].uniform("crop", count) == keys.uniform("crop", count)[rows]).all()
    assert (keys[np.arange(20)[rows]].uniform("crop", count) == keys.uniform("crop", count)[rows]).all()
    assert len(keys[rows]) == len(range(20)[rows])


def test_a_longer_draw_starts_with_the_shorter_one():
    assert (keys_of(5).uniform("crop", 7)[:, :3] == keys_of(5).uniform("crop", 3)).all()


@given(seed=SEEDS, epoch=st.integers(0, 1000), count=st.integers(1, 300))
def test_a_permutation_has_every_number_once(seed, epoch, count):
    assert sorted(permutation(seed, epoch, count)) == list(range(count))


def test_permutations_differ_between_epochs_and_seeds_and_are_uniform():
    orders = np.stack([permutation(0, epoch, 100) for epoch in range(200)])
    assert len(np.unique(orders, axis=0)) == 200
    assert (permutation(0, 0, 100) != permutation(1, 0, 100)).any()
    standard_error = 100 / np.sqrt(12 * 200)
    assert np.abs(orders.mean(0) - 49.5).max() < 4.5 * standard_error

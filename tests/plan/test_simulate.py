"""Simulated runs see every sample once per epoch, with and without failures."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitkit.data.sampler import Sampler
from vitkit.errors import ConfigError
from vitkit.model.variants import get_config
from vitkit.plan.job import Job
from vitkit.plan.simulate import RANKS, Cluster, simulate_coverage, simulate_scaling
from vitkit.plan.step_time import Network, Rates


@pytest.mark.parametrize("ranks", RANKS)
def test_every_sample_comes_once_per_epoch_at_every_world_size(ranks: int) -> None:
    found = simulate_coverage(Sampler(count=9001, batch_size=4096, seed=3), epochs=1, ranks=[ranks])
    assert found.exact
    assert found.steps == found.lasting == 3


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 300), st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.integers(1, 7), st.integers(0, 5),
)  # fmt: skip
def test_failures_and_changes_of_the_world_size_lose_and_repeat_no_sample(
    count: int, ranks: list[int], save_every: int, seed: int
) -> None:
    sampler = Sampler(count, batch_size=12, seed=seed)
    found = simulate_coverage(sampler, 2, ranks, fail_every=2 * save_every + 1, save_every=save_every, seed=seed)
    assert found.exact
    assert found.steps >= found.lasting == -(-2 * count // 12)


def test_ranks_that_take_the_wrong_share_are_detected() -> None:
    class Wrong(Sampler):
        def at(self, step: int, part: tuple[int, int] = (0, 1)):  # type: ignore[no-untyped-def]
            return super().at(step, (0, part[1]))  # every rank takes the share of rank 0

    assert not simulate_coverage(Wrong(100, 8), 1, [4]).exact
    assert simulate_coverage(Wrong(100, 8), 1, [1]).exact


def test_more_ranks_than_images_are_an_error() -> None:
    with pytest.raises(ConfigError, match="too small for 9 processes"):
        simulate_coverage(Sampler(100, 8), 1, [9])


CLUSTER = Cluster(Rates(4e14), Network(25e9), memory=80e9)
JOB = Job(get_config("vit_large_patch16_224"), 4096, precision="bf16", device="cuda")


def test_more_ranks_are_faster_until_communication_and_failures_dominate() -> None:
    points = simulate_scaling(JOB, CLUSTER, failures=1000)
    assert [p.ranks for p in points] == list(RANKS)
    speeds = [p.images_per_s for p in points]
    assert all(after > 1.9 * before for before, after in pairwise(speeds[:5])), "at first, communication is hidden"
    assert max(speeds[8:]) < 1.3 * speeds[8], "then, communication dominates"
    assert all(p.images_per_s <= points[0].images_per_s * p.ranks * 1.0001 for p in points)
    assert points[0].goodput > points[-1].goodput
    assert points[-1].mtbf == pytest.approx(CLUSTER.node_mtbf / 512)
    assert all(p.simulated_goodput == pytest.approx(p.goodput, abs=0.005) for p in points)


def test_a_model_too_large_for_one_rank_fits_on_more_ranks_with_sharding() -> None:
    giant = Job(get_config("vit_gigantic_patch14_224"), 4096, precision="bf16", device="cuda", shard="full")
    points = simulate_scaling(giant, Cluster(Rates(4e14), Network(25e9), 24e9), failures=1)
    fitting = [p.ranks for p in points if p.micro_batch]
    assert fitting
    assert fitting[0] > 1
    assert fitting == [n for n in RANKS if n >= fitting[0]]


def test_a_cluster_that_always_fails_is_not_simulated() -> None:
    cluster = Cluster(Rates(1e14), Network(25e9), 80e9, node_mtbf=1.0, per_node=1)
    last = simulate_scaling(Job(get_config("vit_tiny_patch16_224"), 4096, 1, device="cuda"), cluster)[-1]
    assert last.simulated_goodput == 0

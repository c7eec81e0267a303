"""Every rank asks the real order; what lasts is every sample once per epoch, whatever failed."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitkit.data.sampler import Sampler
from vitkit.errors import ConfigError
from vitkit.model.variants import get_config
from vitkit.plan.draw import draw
from vitkit.plan.job import Job
from vitkit.plan.simulate import RANKS, Cluster, cover, scale
from vitkit.plan.step_time import Network, Rates


@pytest.mark.parametrize("ranks", RANKS)
def test_every_sample_comes_once_per_epoch_at_every_size_of_the_world(ranks: int) -> None:
    found = cover(Sampler(count=9001, batch_size=4096, seed=3), epochs=1, ranks=[ranks])
    assert found.exact
    assert found.steps == found.lasting == 3


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 300), st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.integers(1, 7), st.integers(0, 5),
)  # fmt: skip
def test_failures_and_other_sizes_of_the_world_change_nothing_that_lasts(
    count: int, ranks: list[int], save_every: int, seed: int
) -> None:
    plan = Sampler(count, batch_size=12, seed=seed)
    found = cover(plan, 2, ranks, fail_every=2 * save_every + 1, save_every=save_every, seed=seed)
    assert found.exact
    assert found.steps >= found.lasting == -(-2 * count // 12)


def test_ranks_that_take_the_wrong_share_are_found_out() -> None:
    class Wrong(Sampler):
        def at(self, step: int, part: tuple[int, int] = (0, 1)):  # type: ignore[no-untyped-def]
            return super().at(step, (0, part[1]))  # every rank takes the first one's share

    assert not cover(Wrong(100, 8), 1, [4]).exact
    assert cover(Wrong(100, 8), 1, [1]).exact


def test_a_world_that_has_more_ranks_than_images_is_refused() -> None:
    with pytest.raises(ConfigError, match="too small for 9 processes"):
        cover(Sampler(100, 8), 1, [9])


CLUSTER = Cluster(Rates(4e14), Network(25e9), memory=80e9)
JOB = Job(get_config("vit_large_patch16_224"), 4096, precision="bf16", device="cuda")


def test_more_ranks_are_faster_until_they_wait_and_fail_more_often() -> None:
    points = scale(JOB, CLUSTER, failures=1000)
    assert [p.ranks for p in points] == list(RANKS)
    speeds = [p.images_per_s for p in points]
    assert all(after > 1.9 * before for before, after in pairwise(speeds[:5])), "the sending hides at first"
    assert max(speeds[8:]) < 1.3 * speeds[8], "then it is all that counts"
    assert all(p.images_per_s <= points[0].images_per_s * p.ranks * 1.0001 for p in points)
    assert points[0].goodput > points[-1].goodput
    assert points[-1].mtbf == pytest.approx(CLUSTER.node_mtbf / 512)
    assert all(p.simulated_goodput == pytest.approx(p.goodput, abs=0.005) for p in points)


def test_a_model_too_large_for_one_rank_appears_where_sharding_lets_it() -> None:
    giant = Job(get_config("vit_gigantic_patch14_224"), 4096, precision="bf16", device="cuda", shard="full")
    fitting = [p.ranks for p in scale(giant, Cluster(Rates(4e14), Network(25e9), 24e9), failures=1) if p.micro_batch]
    assert fitting
    assert fitting[0] > 1
    assert fitting == [n for n in RANKS if n >= fitting[0]]


def test_a_cluster_that_always_fails_is_not_played_through() -> None:
    cluster = Cluster(Rates(1e14), Network(25e9), 80e9, node_mtbf=1.0, per_node=1)
    last = scale(Job(get_config("vit_tiny_patch16_224"), 4096, 1, device="cuda"), cluster)[-1]
    assert last.simulated_goodput == 0


def test_the_picture_is_drawn(tmp_path) -> None:  # type: ignore[no-untyped-def]
    draw(JOB, CLUSTER, scale(JOB, CLUSTER), tmp_path / "scale.png", "ViT-L/16")
    pixels = np.asarray(Image.open(tmp_path / "scale.png").convert("L"))
    assert pixels.shape > (800, 1000)
    assert 0.01 < (pixels < 128).mean() < 0.5

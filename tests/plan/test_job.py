"""Shares of a step, and settings that are rejected."""

import pytest

from vitkit.data.sampler import rank_rows
from vitkit.errors import ConfigError
from vitkit.model.variants import get_config
from vitkit.plan.job import Job

SMALL = get_config("vit_nano_patch4_32")


def test_a_batch_with_fewer_images_than_ranks_is_an_error() -> None:
    with pytest.raises(ConfigError, match="batch=3 is too small for 4 processes"):
        Job(SMALL, 3, 4)


def test_negative_settings_are_errors() -> None:
    with pytest.raises(ConfigError, match="micro_batch=-1, cores=1: must be positive"):
        Job(SMALL, 4, micro_batch=-1)


@pytest.mark.parametrize(("batch", "ranks"), [(64, 8), (100, 7), (7, 7), (4099, 64)])
def test_the_batch_of_a_rank_is_the_largest_share(batch: int, ranks: int) -> None:
    parts = [rank_rows(batch, (rank, ranks)) for rank in range(ranks)]
    assert Job(SMALL, batch, ranks).rank_batch == max(p.stop - p.start for p in parts)


def test_micro_batches_cores_and_shards_follow_from_the_settings() -> None:
    job = Job(SMALL, 64, ranks=2, micro_batch=8, cores=2, shard="full", precision="bf16")
    assert (job.rank_batch, job.forward_batch, job.accumulates, job.shards, job.matmul_bytes) == (32, 8, True, 2, 2)
    assert job.replicas == 1, "several ranks use one core each"
    alone = job.replace(ranks=1, micro_batch=0)
    assert (alone.forward_batch, alone.accumulates, alone.shards, alone.replicas) == (64, False, 1, 2)

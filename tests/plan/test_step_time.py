"""Communication volumes computed by hand, and the step times that follow from them."""

import math

import pytest

from vitkit.model import create_model
from vitkit.model.variants import get_config
from vitkit.plan.job import Job
from vitkit.plan.parameter_count import parameters
from vitkit.plan.step_time import Network, Rates, Volume, communication_volume, flops, macs, step_time, update_flops

TINY = get_config("vit_tiny_patch16_224")
PARAMETERS = 5_717_416  # counted by tests/model too


def test_the_parameter_count_of_the_hand_computed_cases() -> None:
    assert (
        parameters(TINY).total == PARAMETERS == sum(p.numel() for p in create_model(TINY, device="meta").parameters())
    )


@pytest.mark.parametrize(("ranks", "share"), [(1, 0.0), (2, 1.0), (4, 1.5), (4096, 2 * 4095 / 4096)])
def test_ddp_sends_the_gradients_of_a_ring_all_reduce(ranks: int, share: float) -> None:
    assert communication_volume(Job(TINY, 4096, ranks)).total == int(share * 4 * PARAMETERS)


def test_fsdp_gathers_weights_twice_in_bf16_and_scatters_gradients_in_float32() -> None:
    sent = communication_volume(Job(TINY, 8, 8, shard="full", precision="bf16"))
    gather, scatter = 7 * 2 * PARAMETERS // 8, 7 * 4 * PARAMETERS // 8
    assert sent == Volume(gather, gather + scatter, 3 * 13)


def test_micro_batches_add_communication_to_fsdp_but_not_to_ddp() -> None:
    job = Job(TINY, 64, 8)
    assert communication_volume(job.replace(micro_batch=2)) == communication_volume(job)
    sharded = job.replace(shard="full")
    assert communication_volume(sharded.replace(micro_batch=2)).total == 4 * communication_volume(sharded).total


def test_a_step_is_six_flops_per_multiply_add_and_checkpointing_eight_of_the_blocks() -> None:
    block, rest = macs(TINY)
    assert 12 * block + rest == pytest.approx(1.26e9, rel=0.01)
    job = Job(TINY, 10)
    assert sum(flops(job)) == 60 * (12 * block + rest)
    assert sum(flops(job.replace(checkpoint=True))) - sum(flops(job)) == 20 * 12 * block


def test_time_is_work_divided_by_rate() -> None:
    job = Job(TINY, 10, ema=False)
    assert step_time(job, Rates(1e12)).seconds == pytest.approx(sum(flops(job)) / 1e12)
    assert step_time(job.replace(batch_size=20), Rates(1e12)).seconds == pytest.approx(2 * sum(flops(job)) / 1e12)


def test_muon_multiplies_more_than_adamw() -> None:
    assert update_flops(Job(TINY, 1)) == 0
    d, m = 192, 768
    matrices = [(d, 3 * d), (d, d), (d, m), (d, m)]
    by_hand = 12 * sum(5 * (2 * s * s * n + 2 * s * s * s + 2 * s * s * n) for s, n in matrices)
    assert update_flops(Job(TINY, 1, optimizer="muon")) == by_hand


def test_communication_overlaps_with_the_backward_pass() -> None:
    job, rates = Job(TINY, 64, 8), Rates(1e12)
    alone = step_time(job, rates)
    fast, slow = (step_time(job, rates, Network(bandwidth, latency=0)) for bandwidth in (1e12, 1e8))
    assert fast.waiting == 0
    assert fast.seconds == alone.seconds
    assert slow.communication == pytest.approx(communication_volume(job).total / 1e8)
    assert slow.seconds == pytest.approx(alone.forward + slow.communication)


def test_latency_counts_every_collective_as_a_tree() -> None:
    job = Job(TINY, 4096, 4096)
    found = step_time(job, Rates(1e30), Network(math.inf, 1e-5))
    assert found.waiting == pytest.approx(communication_volume(job).calls * 2 * 12 * 1e-5)

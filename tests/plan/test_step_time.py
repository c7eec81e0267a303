"""Volumes by hand; step times that follow from them."""

import math

import pytest

from vitkit.model import create_model
from vitkit.model.variants import get_config
from vitkit.plan.job import Job
from vitkit.plan.parameters import parameters
from vitkit.plan.step_time import Network, Rates, Volume, flops, macs, step_time, update_flops, volume

TINY = get_config("vit_tiny_patch16_224")
PARAMETERS = 5_717_416  # counted by tests/model too


def test_the_parameters_are_those_of_the_hand_computed_cases() -> None:
    assert (
        parameters(TINY).total == PARAMETERS == sum(p.numel() for p in create_model(TINY, device="meta").parameters())
    )


@pytest.mark.parametrize(("ranks", "share"), [(1, 0.0), (2, 1.0), (4, 1.5), (4096, 2 * 4095 / 4096)])
def test_ddp_sends_twice_the_gradients_but_for_a_part(ranks: int, share: float) -> None:
    assert volume(Job(TINY, 4096, ranks)).total == int(share * 4 * PARAMETERS)


def test_fsdp_gathers_twice_in_bf16_and_scatters_in_float32() -> None:
    sent = volume(Job(TINY, 8, 8, shard="full", precision="bf16"))
    gather, scatter = 7 * 2 * PARAMETERS // 8, 7 * 4 * PARAMETERS // 8
    assert sent == Volume(gather, gather + scatter, 3 * 13)


def test_micro_batches_make_fsdp_speak_again_and_ddp_not() -> None:
    job = Job(TINY, 64, 8)
    assert volume(job.replace(micro_batch=2)) == volume(job)
    sharded = job.replace(shard="full")
    assert volume(sharded.replace(micro_batch=2)).total == 4 * volume(sharded).total


def test_a_step_is_six_flops_per_multiply_add_and_checkpointing_eight_of_the_blocks() -> None:
    block, rest = macs(TINY)
    assert 12 * block + rest == pytest.approx(1.26e9, rel=0.01)
    job = Job(TINY, 10)
    assert sum(flops(job)) == 60 * (12 * block + rest)
    assert sum(flops(job.replace(checkpoint=True))) - sum(flops(job)) == 20 * 12 * block


def test_time_is_work_over_rate() -> None:
    job = Job(TINY, 10, ema=False)
    assert step_time(job, Rates(1e12)).seconds == pytest.approx(sum(flops(job)) / 1e12)
    assert step_time(job.replace(batch=20), Rates(1e12)).seconds == pytest.approx(2 * sum(flops(job)) / 1e12)


def test_muon_multiplies_more_than_adamw() -> None:
    assert update_flops(Job(TINY, 1)) == 0
    d, m = 192, 768
    matrices = [(d, 3 * d), (d, d), (d, m), (d, m)]
    by_hand = 12 * sum(5 * (2 * s * s * n + 2 * s * s * s + 2 * s * s * n) for s, n in matrices)
    assert update_flops(Job(TINY, 1, optimizer="muon")) == by_hand


def test_sending_hides_behind_the_backward_until_it_is_longer() -> None:
    job, rates = Job(TINY, 64, 8), Rates(1e12)
    alone = step_time(job, rates)
    fast, slow = (step_time(job, rates, Network(bandwidth, latency=0)) for bandwidth in (1e12, 1e8))
    assert fast.waiting == 0
    assert fast.seconds == alone.seconds
    assert slow.communication == pytest.approx(volume(job).total / 1e8)
    assert slow.seconds == pytest.approx(alone.forward + slow.communication)


def test_latency_counts_every_collective_along_a_tree() -> None:
    job = Job(TINY, 4096, 4096)
    found = step_time(job, Rates(1e30), Network(math.inf, 1e-5))
    assert found.waiting == pytest.approx(volume(job).calls * 2 * 12 * 1e-5)

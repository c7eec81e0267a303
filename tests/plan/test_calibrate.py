"""Predictions agree with a process that trains."""

import sys

import pytest
import torch
import torch.nn.functional as F

from vitkit.model.variants import get_config
from vitkit.plan.activations import tokens
from vitkit.plan.calibrate import TrainingStep, calibrate, measure_peak
from vitkit.plan.job import Job
from vitkit.plan.memory import memory
from vitkit.plan.step_time import step_time, traffic


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and configures glibc")
@pytest.mark.parametrize(
    "changes", [{}, {"checkpoint": True}, {"micro_batch": 16}, {"optimizer": "muon"}, {"cores": 4, "micro_batch": 16}]
)
def test_the_measured_peak_agrees_with_the_prediction(changes: dict) -> None:
    job = Job(get_config("vit_micro_patch4_32"), 64, **changes)
    before, highest, _ = measure_peak(job, steps=2)
    assert memory(job, whole_run=False, base=0).peak == pytest.approx(highest - before, rel=0.1)


def test_calibrated_rates_reproduce_the_measured_step() -> None:
    """Uses a fake clock: three rounds, in which a product takes 1 ms and a step 100 ms by the median."""
    seconds = [0.001, 0.1, 0.5, 0.002, 0.0005, 0.01]  # product, step; step, product; product, step
    readings = iter([reading for passed in seconds for reading in (0.0, passed)])
    c = get_config("vit_nano_patch4_32").replace(depth=2)
    rates = calibrate(Job(c, 16), rounds=3, clock=lambda: next(readings))
    assert rates.flops == pytest.approx(2 * 16 * tokens(c) * c.width * c.mlp_width / 0.001)
    assert step_time(Job(c, 16), rates).seconds == pytest.approx(0.1)
    assert next(readings, None) is None


def test_a_slow_product_still_leaves_time_for_the_rest_of_the_step() -> None:
    readings = iter([0.0, 1.0] * 2)
    job = Job(get_config("vit_nano_patch4_32").replace(depth=2), 16)
    rates = calibrate(job, rounds=1, clock=lambda: next(readings))
    assert sum(traffic(job)) / rates.memory == pytest.approx(0.02)


def test_the_measured_step_trains() -> None:
    step = TrainingStep(Job(get_config("vit_nano_patch4_32"), 8))

    def loss() -> float:
        with torch.no_grad():
            return float(F.cross_entropy(step.model(step.pixels / 255), step.labels))

    before = loss()
    for _ in range(5):
        step()
    assert loss() < 0.9 * before
    assert all(p.grad is None for p in step.model.parameters())


def test_the_measured_step_accumulates_micro_batches_of_unequal_size() -> None:
    """After one step, AdamW's first moment is proportional to the gradient."""
    moments = []
    for micro_batch in (0, 3):
        step = TrainingStep(Job(get_config("vit_nano_patch4_32"), 8, micro_batch=micro_batch))
        step()
        (each,) = step.optimizers
        moments.append(torch.cat([each.state[p]["exp_avg"].flatten() for p in step.model.parameters()]))
    torch.testing.assert_close(*moments, rtol=1e-3, atol=1e-6 * float(moments[0].abs().max()))

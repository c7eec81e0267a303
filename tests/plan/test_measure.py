"""The prediction against a process that really trains."""

import sys

import pytest

from vitkit.model.variants import get_config
from vitkit.plan.job import Job
from vitkit.plan.measure import Step, calibrate, peak
from vitkit.plan.memory import memory
from vitkit.plan.time import step_time


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and steers glibc")
@pytest.mark.parametrize("changes", [{}, {"checkpoint": True}, {"micro_batch": 16}, {"optimizer": "muon"}])
def test_the_peak_of_a_process_is_what_was_predicted(changes: dict) -> None:
    job = Job(get_config("vit_micro_patch4_32"), 64, **changes)
    before, highest, _ = peak(job, steps=2)
    assert memory(job, whole_run=False, base=0).peak == pytest.approx(highest - before, rel=0.1)


def test_calibration_finds_rates_that_explain_its_own_step() -> None:
    job = Job(get_config("vit_nano_patch4_32").replace(depth=2), 16)
    rates = calibrate(job, rounds=1)
    assert rates.flops > 1e7
    assert rates.memory > 1e6
    assert step_time(job.replace(batch=32), rates).seconds > step_time(job, rates).seconds


def test_the_measured_step_trains() -> None:
    step = Step(Job(get_config("vit_nano_patch4_32"), 8, micro_batch=3))
    before = [p.detach().clone() for p in step.model.parameters()]
    step()
    assert all(p.grad is None for p in step.model.parameters())
    assert any((p != old).any() for p, old in zip(step.model.parameters(), before, strict=True))
    assert step.average is not None

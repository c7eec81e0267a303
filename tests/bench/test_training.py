import pytest

from tests.bench import TINY
from vitkit.bench import bench_training
from vitkit.bench.training import TrainingJob, prepare


def test_results_of_training_steps_are_consistent() -> None:
    results, missing = bench_training(TINY, batch_size=4, against=["tutorial"], rounds=2, memory=False)
    ours, theirs = results[0], results[-1]
    assert not missing
    assert ours.ratio == 1
    assert ours.images_per_s == pytest.approx(4e3 / ours.ms)
    assert theirs.ratio == pytest.approx(theirs.images_per_s / ours.images_per_s)
    assert 0 < ours.peak_share < 1.5
    assert ours.p95_ms >= ours.ms


@pytest.mark.parametrize("name", ["vitkit fp32", "vitkit bf16", "tutorial fp32"])
def test_the_timed_step_trains(name: str) -> None:
    step = prepare(name, TrainingJob(TINY, 4))
    losses = [float(step()) for _ in range(8)]
    assert losses[-1] < losses[0]

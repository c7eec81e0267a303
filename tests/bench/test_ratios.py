"""Speed relative to baselines, measured for a second, with margins that only a real regression exceeds."""

import pytest

from vitkit.bench.baselines import BaselineUnavailable
from vitkit.bench.inference import InferenceJob, prepare, with_class_names
from vitkit.bench.training import TrainingJob
from vitkit.bench.training import prepare as prepare_training
from vitkit.model import create_model
from vitkit.model.variants import get_config
from vitkit.runtime.timing import medians, time_calls

NANO = get_config("vit_nano_patch4_32")


def ratio(ours: str, theirs: str, prepared, job) -> float:
    """Return our speed as a multiple of theirs."""
    runs = {name: prepared(name, job) for name in (ours, theirs)}
    seconds = medians(time_calls(runs, rounds=7, warmup=2, turn_seconds=0.05))
    return seconds[theirs] / seconds[ours]


def test_inference_takes_less_than_twice_the_time_of_timm() -> None:
    job = InferenceJob(with_class_names(create_model(NANO)), batch_size=8)
    try:
        faster = ratio("vitkit eager", "timm default", prepare, job)
    except BaselineUnavailable as error:
        pytest.skip(str(error))
    assert faster > 0.5  # vitkit starts from raw pixels, timm from normalised ones


def test_a_training_step_takes_at_most_a_third_longer_than_the_naive_vit() -> None:
    job = TrainingJob(NANO, batch_size=16)
    assert ratio("vitkit fp32", "tutorial fp32", prepare_training, job) > 0.75


def test_a_model_of_twice_the_depth_exceeds_the_margin() -> None:
    deep = TrainingJob(NANO.replace(depth=2 * NANO.depth), batch_size=16)
    runs = {
        "deep": prepare_training("vitkit fp32", deep),
        "plain": prepare_training("vitkit fp32", TrainingJob(NANO, 16)),
    }
    seconds = medians(time_calls(runs, rounds=7, warmup=2, turn_seconds=0.05))
    assert seconds["plain"] / seconds["deep"] < 0.75

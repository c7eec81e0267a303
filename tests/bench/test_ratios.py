"""Our speed as a multiple of a peer's, in contests of a second: with margins that only a real loss goes through."""

import pytest

from vitkit.bench.baselines import Absent
from vitkit.bench.inference import Job, named, prepare
from vitkit.bench.training import Job as TrainingJob
from vitkit.bench.training import prepare as prepare_training
from vitkit.model import create_model
from vitkit.model.variants import get_config
from vitkit.runtime.timing import medians, time_calls

NANO = get_config("vit_nano_patch4_32")


def ratio(ours: str, theirs: str, prepared, job) -> float:
    """Speed as a multiple of theirs."""
    runs = {name: prepared(name, job) for name in (ours, theirs)}
    seconds = medians(time_calls(runs, rounds=7, warmup=2, turn_seconds=0.05))
    return seconds[theirs] / seconds[ours]


def test_an_answer_takes_less_than_twice_the_time_of_timms() -> None:
    job = Job(named(create_model(NANO)), batch=8)
    try:
        faster = ratio("vitkit eager", "timm default", prepare, job)
    except Absent as error:
        pytest.skip(str(error))
    assert faster > 0.5  # ours begins with raw pixels, theirs with normalised ones


def test_a_training_step_takes_at_most_a_third_longer_than_the_tutorials() -> None:
    job = TrainingJob(NANO, batch=16)
    assert ratio("vitkit fp32", "tutorial fp32", prepare_training, job) > 0.75


def test_the_margin_is_one_that_a_slower_model_does_not_pass() -> None:
    """Twice as many layers: the contest must see it."""
    deep = TrainingJob(NANO.replace(depth=2 * NANO.depth), batch=16)
    runs = {
        "deep": prepare_training("vitkit fp32", deep),
        "plain": prepare_training("vitkit fp32", TrainingJob(NANO, 16)),
    }
    seconds = medians(time_calls(runs, rounds=7, warmup=2, turn_seconds=0.05))
    assert seconds["plain"] / seconds["deep"] < 0.75

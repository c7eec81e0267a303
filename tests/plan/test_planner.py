"""The plan of a run: the chosen option, its settings and its JSON document."""

import pytest

from vitkit.model.variants import get_config
from vitkit.plan.feasibility import USABLE_FRACTION
from vitkit.plan.job import Job
from vitkit.plan.planner import plan
from vitkit.plan.simulate import Cluster
from vitkit.plan.step_time import Network, Rates

TINY = Job(get_config("vit_tiny_patch16_224"), 64)
CLUSTER = Cluster(Rates(1e12), Network(25e9), memory=8e9)


def test_a_job_that_fits_is_not_changed() -> None:
    found = plan(TINY, 64e9, images=1000, epochs=3, minutes=0, cluster=CLUSTER)
    assert found.fits
    assert found.job == TINY.replace(micro_batch=64)
    assert found.steps == round(3 * 1000 / 64)
    assert found.settings() == ["batch=64", "machine.precision=fp32", "optimizer.name=adamw"]


def test_minutes_override_epochs() -> None:
    found = plan(TINY, 64e9, images=1000, epochs=3, minutes=10, cluster=CLUSTER)
    assert found.seconds == pytest.approx(600, rel=0.01)


def test_a_job_that_does_not_fit_gets_the_fastest_option_with_the_same_result() -> None:
    found = plan(TINY, 1.2e9, images=1000, epochs=3, minutes=0, cluster=CLUSTER)
    assert found.fits
    assert found.job.ema
    assert 0 < found.job.micro_batch < 64
    assert not found.job.checkpoint, "smaller micro-batches cost no recomputation"
    assert f"machine.micro_batch={found.job.micro_batch}" in found.settings()


def test_nothing_fits() -> None:
    found = plan(TINY, 1e8, images=1000, epochs=3, minutes=0, cluster=None)
    assert not found.fits
    assert (found.step, found.seconds, found.smaller_image) == (None, None, None)


def test_the_json_document_has_the_keys_that_scripts_use() -> None:
    gpu = TINY.replace(device="cuda")
    found = plan(gpu, 80e9, images=1000, epochs=3, minutes=0, cluster=CLUSTER).to_dict()
    assert found["memory"].keys() == {
        "parameters", "gradients", "optimizer", "ema", "activations", "buckets", "base", "phases", "highest", "peak",
        "limit",
    }  # fmt: skip
    assert found["memory"]["limit"] == int(80e9 * USABLE_FRACTION["cuda"])
    assert found.keys() == {
        "fits", "memory", "batch", "ranks", "cores", "micro_batch", "checkpoint_activations", "shard", "ways",
        "settings",
        "sent_bytes_per_step", "checkpoint_bytes", "images", "epochs", "steps", "smaller_image", "step_seconds",
        "communication_seconds", "waiting_seconds", "images_per_s", "seconds", "checkpoint_seconds", "mtbf_seconds",
        "checkpoint_interval",
    }  # fmt: skip
    assert found["ways"][0].keys() == {"what", "micro_batch", "peak"}

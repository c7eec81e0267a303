"""Memory of one rank: sharding, checkpointing and phases."""

import pytest

from vitkit.model import ViTConfig, create_model
from vitkit.model.variants import get_config
from vitkit.plan.job import Job
from vitkit.plan.memory import memory

SMALL = ViTConfig.from_dict(
    dict(image_size=16, patch_size=8, width=24, depth=3, heads=2, head_width=12, mlp_width=48, num_classes=5)
)


def test_gradients_are_as_large_as_the_parameters() -> None:
    m = memory(Job(SMALL, 4))
    model = create_model(SMALL)
    assert m.gradients == m.parameters == sum(p.nbytes for p in model.parameters())


def test_sharding_divides_the_state() -> None:
    job = Job(get_config("vit_large_patch16_224"), 256, 64, precision="bf16", device="cuda")
    full, sharded = memory(job), memory(job.replace(shard="full"))
    for part in ("parameters", "gradients", "optimizer", "ema"):
        assert getattr(sharded, part) == pytest.approx(getattr(full, part) / 64, rel=1e-5)
    assert full.buckets == full.gradients
    assert sharded.buckets == 0
    assert sharded.peak < full.peak


def test_memory_grows_with_images_and_shrinks_with_checkpointing() -> None:
    job = Job(get_config("vit_base_patch16_224"), 64)
    peaks = [memory(job.replace(micro_batch=m), whole_run=False).peak for m in (1, 2, 4, 8, 16, 32)]
    assert peaks == sorted(peaks)
    assert memory(job.replace(checkpoint=True), whole_run=False).peak < memory(job, whole_run=False).peak / 2.5


def test_small_batches_peak_where_the_gradients_are_large_ones_where_the_activations_are() -> None:
    c = get_config("vit_base_patch16_224")
    one, many = (memory(Job(c, n), whole_run=False) for n in (1, 64))
    assert many.phases["backward"] > many.activations
    assert one.phases["update"] >= one.gradients
    assert memory(Job(c, 1, optimizer="muon"), whole_run=False).peak_phase == "update"

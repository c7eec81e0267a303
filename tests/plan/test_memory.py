"""Parameters, gradients and optimizer state exactly; the parts of a plan add up."""

from typing import Any, Literal

import pytest
import torch

from vitkit.data.sampler import rank_rows
from vitkit.errors import ConfigError
from vitkit.model import ViTConfig, create_model
from vitkit.model.variants import get_config
from vitkit.plan.checkpoint import state_bytes
from vitkit.plan.feasibility import largest_micro_batch, smaller_image, ways
from vitkit.plan.job import Job
from vitkit.plan.memory import GIB, memory
from vitkit.plan.parameters import optimizer_bytes, parameters
from vitkit.plan.units import parse_bytes
from vitkit.training import recipe
from vitkit.training.autotune import TunedSettings
from vitkit.training.budget import Clock
from vitkit.training.checkpoint import TrainingState
from vitkit.training.ema import EMA
from vitkit.training.optim import make_optimizers

SMALL = ViTConfig.from_dict(
    dict(image_size=16, patch_size=8, width=24, depth=3, heads=2, head_width=12, mlp_width=48, num_classes=5)
)


@pytest.mark.parametrize(
    "changes", [{}, dict(pooling="attention"), dict(stem=(8,)), dict(mlp="swiglu", layer_scale=0.1, qk_norm=True)]
)
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_what_a_run_saves_is_counted_to_the_byte(name: Literal["adamw", "muon"], changes: dict[str, Any]) -> None:
    config = SMALL.replace(**changes)
    model = create_model(config, seed=0)
    optimizers = make_optimizers(model, recipe.Optimizer(name=name))
    model(torch.rand(2, 3, 16, 16)).square().mean().backward()
    for each in optimizers:
        each.step()
    state = TrainingState(model, optimizers, EMA(model), Clock(total=1), TunedSettings())
    job = Job(config, 2, optimizer=name)
    sizes = {key: value.nbytes for key, value in state.tensors().items()}
    assert 4 * parameters(config).total == sum(n for key, n in sizes.items() if key.startswith("model."))
    assert optimizer_bytes(job) == sum(n for key, n in sizes.items() if key.startswith("optimizer."))
    assert state_bytes(job) == sum(sizes.values())


def test_gradients_are_as_large_as_the_parameters() -> None:
    m = memory(Job(SMALL, 4))
    model = create_model(SMALL)
    assert m.gradients == m.parameters == sum(p.nbytes for p in model.parameters())


def test_sharding_divides_the_state_and_nothing_else() -> None:
    job = Job(get_config("vit_large_patch16_224"), 256, 64, precision="bf16", device="cuda")
    whole, cut = memory(job), memory(job.replace(shard="full"))
    for part in ("parameters", "gradients", "optimizer", "ema"):
        assert getattr(cut, part) == pytest.approx(getattr(whole, part) / 64, rel=1e-5)
    assert whole.buckets == whole.gradients
    assert cut.buckets == 0
    assert cut.peak < whole.peak


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
    assert memory(Job(c, 1, optimizer="muon"), whole_run=False).highest == "update"


def test_the_largest_micro_batch_fits_and_its_double_does_not() -> None:
    job = Job(get_config("vit_base_patch16_224"), 256)
    found = largest_micro_batch(job, 6e9)
    assert memory(job.replace(micro_batch=found)).peak <= 6e9 < memory(job.replace(micro_batch=2 * found)).peak


def test_what_does_not_fit_comes_with_what_would() -> None:
    job = Job(get_config("vit_gigantic_patch14_224"), 512, 64, precision="bf16", device="cuda")
    found = {way.what: way.micro_batch for way in ways(job, 24e9)}
    assert found["as asked"] == found["activation checkpointing"] == 0
    assert found["sharding and checkpointing"] >= found["sharding"] >= 0
    assert found["sharding and checkpointing"] > 0


def test_a_smaller_image_is_named_where_nothing_else_helps() -> None:
    job = Job(get_config("vit_base_patch8_224").replace(image_size=1024), 1)
    assert largest_micro_batch(job.replace(checkpoint=True), 8 * GIB) == 0
    side = smaller_image(job, 8 * GIB)
    assert side
    assert side % 8 == 0
    sized = job.replace(config=job.config.replace(image_size=side), checkpoint=True)
    assert largest_micro_batch(sized, 8 * GIB) == 1


def test_a_batch_with_fewer_images_than_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch=3 is too small for 4 processes"):
        Job(SMALL, 3, 4)


@pytest.mark.parametrize(("batch", "ranks"), [(64, 8), (100, 7), (7, 7), (4099, 64)])
def test_the_share_is_that_of_the_rank_with_most_images(batch: int, ranks: int) -> None:
    parts = [rank_rows(batch, (rank, ranks)) for rank in range(ranks)]
    assert Job(SMALL, batch, ranks).share == max(p.stop - p.start for p in parts)


@pytest.mark.parametrize(("text", "count"), [("80GB", 80e9), ("6 GiB", 6 * 2**30), ("512mb", 512e6), ("1.5TB", 1.5e12)])
def test_amounts_are_read(text: str, count: float) -> None:
    assert parse_bytes(text, "--memory") == count


@pytest.mark.parametrize("text", ["", "much", "6 XB", "-6GB", "0GB"])
def test_amounts_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--memory"):
        parse_bytes(text, "--memory")

"""What fits in memory, and which changes make a job fit."""

from vitkit.model.variants import get_config
from vitkit.plan.feasibility import largest_micro_batch, options, smaller_image
from vitkit.plan.job import Job
from vitkit.plan.memory import GIB, memory


def test_the_largest_micro_batch_fits_and_its_double_does_not() -> None:
    job = Job(get_config("vit_base_patch16_224"), 256)
    found = largest_micro_batch(job, 6e9)
    assert memory(job.replace(micro_batch=found)).peak <= 6e9 < memory(job.replace(micro_batch=2 * found)).peak


def test_a_job_that_does_not_fit_comes_with_options_that_do() -> None:
    job = Job(get_config("vit_gigantic_patch14_224"), 512, 64, precision="bf16", device="cuda")
    found = {option.what: option.micro_batch for option in options(job, 24e9)}
    assert found["as asked"] == found["activation checkpointing"] == 0
    assert found["sharding and checkpointing"] >= found["sharding"] >= 0
    assert found["sharding and checkpointing"] > 0


def test_a_smaller_image_is_suggested_if_nothing_else_fits() -> None:
    job = Job(get_config("vit_base_patch8_224").replace(image_size=1024), 1)
    assert largest_micro_batch(job.replace(checkpoint=True), 8 * GIB) == 0
    side = smaller_image(job, 8 * GIB)
    assert side
    assert side % 8 == 0
    resized = job.replace(config=job.config.replace(image_size=side), checkpoint=True)
    assert largest_micro_batch(resized, 8 * GIB) == 1

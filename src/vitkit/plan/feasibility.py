"""Which variants of a job fit in memory: smaller micro-batches, recomputation, sharding, smaller images."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vitkit.plan.job import Job
from vitkit.plan.memory import Memory, memory

USABLE_FRACTION = {"cpu": 1.0, "cuda": 0.92}  # of the memory; a GPU's allocator cannot fill the rest


@dataclass(frozen=True)
class Option:
    """One variant of the job. `micro_batch` is the largest that fits; 0: not even one image does."""

    what: str
    job: Job
    micro_batch: int

    @property
    def fits(self) -> bool:
        return self.micro_batch > 0

    @property
    def runnable(self) -> Job:
        """The job with that micro-batch, or with single images if nothing fits."""
        return self.job.replace(micro_batch=self.micro_batch or 1)

    @property
    def memory(self) -> Memory:
        return memory(self.runnable)


def fits(job: Job, limit: float) -> bool:
    return memory(job).peak <= limit * USABLE_FRACTION[job.device]


def largest_micro_batch(job: Job, limit: float) -> int:
    """Return the batch of a rank if it fits, else the largest power of two that does; 0 if one image does not fit."""
    if fits(job.replace(micro_batch=job.rank_batch), limit):
        return job.rank_batch
    powers = [2**k for k in range(job.rank_batch.bit_length()) if 2**k < job.rank_batch]
    return max((m for m in powers if fits(job.replace(micro_batch=m), limit)), default=0)


def options(job: Job, limit: float) -> Iterator[Option]:
    """Yield the job as given, then variants of it, the cheapest change first."""
    yield Option("as asked", job, largest_micro_batch(job, limit))
    variants: dict[str, dict[str, Any]] = {"activation checkpointing": dict(checkpoint=True)}
    if job.ranks > 1:
        variants |= {"sharding": dict(shard="full"), "sharding and checkpointing": dict(shard="full", checkpoint=True)}
    else:
        variants |= {"no moving average": dict(ema=False, checkpoint=True)}
    seen = [job]
    for what, changes in variants.items():
        if (changed := job.replace(**changes)) not in seen:
            seen.append(changed)
            yield Option(what, changed, largest_micro_batch(changed, limit))


def smaller_image(job: Job, limit: float) -> int | None:
    """Return the largest image height below the model's, in patches, at which single images fit."""
    patch = job.config.patch_size
    for rows in range(job.config.grid[0] - 1, 0, -1):
        columns = max(1, round(job.config.grid[1] * rows / job.config.grid[0]))
        resized = job.config.replace(image_size=(rows * patch[0], columns * patch[1]))
        if fits(job.replace(config=resized, micro_batch=1, checkpoint=True), limit):
            return rows * patch[0]
    return None

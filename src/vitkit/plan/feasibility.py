"""What fits, and what would: fewer images at a time, activations computed twice, sharding, smaller images."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vitkit.plan.job import Job
from vitkit.plan.memory import Memory, memory

USABLE = {"cpu": 1.0, "cuda": 0.92}  # of a GPU's memory, the rest for what its allocator cannot fill


@dataclass(frozen=True)
class Fit:
    """One way to run the job. `micro_batch` is the largest that fits; 0: not even one image does."""

    what: str
    job: Job
    micro_batch: int

    @property
    def fits(self) -> bool:
        return self.micro_batch > 0

    @property
    def runs(self) -> Job:
        """With that micro-batch; where none fits, with a single image."""
        return self.job.replace(micro_batch=self.micro_batch or 1)

    @property
    def memory(self) -> Memory:
        return memory(self.runs)


def fits(job: Job, limit: float) -> bool:
    return memory(job).peak <= limit * USABLE[job.device]


def largest_micro_batch(job: Job, limit: float) -> int:
    """A rank's whole share if it fits, else the largest power of two that does; 0 where one image is too many."""
    if fits(job.replace(micro_batch=job.share), limit):
        return job.share
    powers = [2**k for k in range(job.share.bit_length()) if 2**k < job.share]
    return max((m for m in powers if fits(job.replace(micro_batch=m), limit)), default=0)


def ways(job: Job, limit: float) -> Iterator[Fit]:
    """The job as asked for, and what to change about it, the cheapest change first."""
    yield Fit("as asked", job, largest_micro_batch(job, limit))
    variants: dict[str, dict[str, Any]] = {"activation checkpointing": dict(checkpoint=True)}
    if job.ranks > 1:
        variants |= {"sharding": dict(shard="full"), "sharding and checkpointing": dict(shard="full", checkpoint=True)}
    else:
        variants |= {"no moving average": dict(ema=False, checkpoint=True)}
    seen = [job]
    for what, changes in variants.items():
        if (changed := job.replace(**changes)) not in seen:
            seen.append(changed)
            yield Fit(what, changed, largest_micro_batch(changed, limit))


def smaller_image(job: Job, limit: float) -> int | None:
    """The largest side below the model's, in whole patches, of which one image at a time fits."""
    patch = job.config.patch_size
    for rows in range(job.config.grid[0] - 1, 0, -1):
        columns = max(1, round(job.config.grid[1] * rows / job.config.grid[0]))
        sized = job.config.replace(image_size=(rows * patch[0], columns * patch[1]))
        if fits(job.replace(config=sized, micro_batch=1, checkpoint=True), limit):
            return rows * patch[0]
    return None

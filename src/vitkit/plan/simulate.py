"""Simulation of a run on 1 to 4,096 ranks: samples, failures, checkpoints and their cost.

The samples come from `data/sampler.py`, as in a real run.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vitkit.data.sampler import Sampler
from vitkit.plan.checkpoint_size import Failures, daly_interval, expected_seconds, goodput, state_bytes
from vitkit.plan.feasibility import largest_micro_batch
from vitkit.plan.job import Job
from vitkit.plan.step_time import Network, Rates, communication_volume, step_time

RANKS = tuple(2**k for k in range(13))
MAX_SLOWDOWN = 1000.0  # by failures; beyond, the simulation would take too long


@dataclass(frozen=True)
class Cluster:
    rates: Rates
    network: Network
    memory: float  # bytes of one rank
    per_node: int = 8  # ranks that fail together
    node_mtbf: float = 6300 * 3600.0  # seconds; Llama 3 (2024): 419 failures of 2,048 nodes in 54 days
    storage: float = 2e9  # bytes per second of all ranks together
    restart: float = 300.0

    def failures(self, job: Job) -> Failures:
        nodes = -(-job.ranks // self.per_node)
        return Failures(self.node_mtbf / nodes, state_bytes(job) / self.storage, self.restart)


@dataclass(frozen=True)
class ScalePoint:
    """The run on one number of ranks."""

    ranks: int
    micro_batch: int  # 0: nothing fits
    checkpoint: bool
    step_seconds: float
    images_per_s: float
    sent_bytes: int
    mtbf: float
    interval: float
    goodput: float
    simulated_goodput: float


def simulate_scaling(
    job: Job, cluster: Cluster, ranks: Iterable[int] = RANKS, failures: int = 1000
) -> list[ScalePoint]:
    """Simulate the same batch size on more and more ranks. `failures` is the mean number of failures per simulation."""
    return [_point(job.replace(ranks=n, micro_batch=0), cluster, failures) for n in ranks if n <= job.batch_size]


def _point(job: Job, cluster: Cluster, mean_failures: int) -> ScalePoint:
    for checkpoint in dict.fromkeys((job.checkpoint, True)):
        tried = job.replace(checkpoint=checkpoint)
        if micro := largest_micro_batch(tried, cluster.memory):
            job = tried.replace(micro_batch=micro)
            break
    else:
        return ScalePoint(job.ranks, 0, job.checkpoint, 0, 0, 0, 0, 0, 0, 0)
    seconds, failures = step_time(job, cluster.rates, cluster.network).seconds, cluster.failures(job)
    interval = max(daly_interval(failures), seconds)
    work = mean_failures * failures.mtbf
    took = simulate_elapsed(work, interval, failures, np.random.default_rng(job.ranks))
    return ScalePoint(
        job.ranks, micro, job.checkpoint, seconds, job.batch_size / seconds, communication_volume(job).total,
        failures.mtbf, interval, goodput(interval, failures), work / took,
    )  # fmt: skip


def simulate_elapsed(work: float, interval: float, f: Failures, rng: np.random.Generator) -> float:
    """Return the seconds until `work` seconds of work are done and saved. A restart can fail as well.

    The result is infinite if failures slow the run down by more than `MAX_SLOWDOWN`.
    """
    if expected_seconds(work, interval, f) > MAX_SLOWDOWN * work:
        return math.inf
    clock, done, until_failure = 0.0, 0.0, rng.exponential(f.mtbf)
    while True:
        pieces = math.ceil((work - done) / interval)
        left = work - done + pieces * f.write
        if until_failure >= left:
            return clock + left
        done += interval * min(int(until_failure // (interval + f.write)), pieces - 1)
        clock, until_failure = clock + until_failure, rng.exponential(f.mtbf)
        while until_failure <= f.restart:
            clock, until_failure = clock + until_failure, rng.exponential(f.mtbf)
        clock, until_failure = clock + f.restart, until_failure - f.restart


@dataclass(frozen=True)
class Coverage:
    ranks: tuple[int, ...]  # the world sizes, in order
    steps: int  # including those that a failure undid
    lasting: int  # steps of the final run
    epochs: int
    exact: bool  # every sample exactly once in each of the epochs


def simulate_coverage(
    sampler: Sampler, epochs: int, ranks: Sequence[int], fail_every: float = 0.0, save_every: int = 1, seed: int = 0
) -> Coverage:
    """Check that the final run sees every sample once per epoch.

    Every rank asks the sampler for its part of every step. After a failure the run resumes from the last checkpoint
    with the next number of `ranks`.
    """
    rng, total = np.random.default_rng(seed), -(-epochs * sampler.count // sampler.batch_size)
    seen: dict[int, np.ndarray] = {}
    step, taken, world, sizes = 0, 0, 0, [ranks[0]]
    while step < total:
        if fail_every and rng.random() < 1 / fail_every:
            step, world = step // save_every * save_every, world + 1
            sizes.append(ranks[world % len(ranks)])
        keys = [sampler.at(step, (rank, sizes[-1])) for rank in range(sizes[-1])]
        seen[step] = np.stack([np.concatenate([getattr(p, key) for p in keys]) for key in ("epoch", "index")])
        step, taken = step + 1, taken + 1
    epoch, index = np.concatenate([seen[s] for s in range(total)], axis=1)
    everything = np.arange(sampler.count)
    exact = all(np.array_equal(np.sort(index[epoch == e]), everything) for e in range(epochs))
    return Coverage(tuple(sizes), taken, total, epochs, exact)


def simulate_all_coverage(images: int, batch_size: int, ranks: Iterable[int] = RANKS, seed: int = 0) -> list[Coverage]:
    """Simulate one epoch on each number of ranks, then three epochs with failures on the larger half of them.

    A few steps are enough, because the same functions give the order and the shares of all steps.
    """
    sizes = [n for n in ranks if n <= batch_size]
    sampler = Sampler(min(images, 2 * batch_size + 7), batch_size, seed)
    failing = simulate_coverage(sampler, 3, sizes[len(sizes) // 2 :], fail_every=3, save_every=2, seed=seed)
    return [*(simulate_coverage(sampler, 1, [n]) for n in sizes), failing]

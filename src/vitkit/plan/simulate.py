"""A run of 1 … 4,096 ranks, played through: which samples it sees, when it fails, what that costs.

The order of the samples is not imitated: `data/sampler.py` is asked, as every rank of a real run asks it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vitkit.data.sampler import Sampler
from vitkit.plan.checkpoint import Failures, daly, expected_seconds, goodput, state_bytes
from vitkit.plan.feasibility import largest_micro_batch
from vitkit.plan.job import Job
from vitkit.plan.step_time import Network, Rates, step_time, volume

RANKS = tuple(2**k for k in range(13))
HOPELESS = 1000.0  # times as long as without failures


@dataclass(frozen=True)
class Cluster:
    rates: Rates
    network: Network
    memory: float  # bytes of one rank
    per_node: int = 8  # ranks that fail together
    node_mtbf: float = 6300 * 3600.0  # seconds; Llama 3 (2024): 419 failures of 2,048 nodes in 54 days
    storage: float = 2e9  # bytes per second into which all ranks write together
    restart: float = 300.0

    def failures(self, job: Job) -> Failures:
        nodes = -(-job.ranks // self.per_node)
        return Failures(self.node_mtbf / nodes, state_bytes(job) / self.storage, self.restart)


@dataclass(frozen=True)
class Point:
    """One number of ranks."""

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

    @property
    def lasting_images_per_s(self) -> float:
        return self.images_per_s * self.goodput


def scale(job: Job, cluster: Cluster, ranks: Iterable[int] = RANKS, failures: int = 1000) -> list[Point]:
    """The same batch on more and more ranks: the result of the run stays the same, only its time changes.

    `failures`: how many are played through, on average, for each number of ranks.
    """
    return [_point(job.replace(ranks=n, micro_batch=0), cluster, failures) for n in ranks if n <= job.batch]


def _point(job: Job, cluster: Cluster, played: int) -> Point:
    for checkpoint in dict.fromkeys((job.checkpoint, True)):
        tried = job.replace(checkpoint=checkpoint)
        if micro := largest_micro_batch(tried, cluster.memory):
            job = tried.replace(micro_batch=micro)
            break
    else:
        return Point(job.ranks, 0, job.checkpoint, 0, 0, 0, 0, 0, 0, 0)
    seconds, failures = step_time(job, cluster.rates, cluster.network).seconds, cluster.failures(job)
    interval = max(daly(failures), seconds)
    work = played * failures.mtbf
    took = elapsed(work, interval, failures, np.random.default_rng(job.ranks))
    return Point(
        job.ranks, micro, job.checkpoint, seconds, job.batch / seconds, volume(job).total,
        failures.mtbf, interval, goodput(interval, failures), work / took,
    )  # fmt: skip


def elapsed(work: float, interval: float, f: Failures, draws: np.random.Generator) -> float:
    """Seconds until `work` seconds of it are done and saved, from failure to failure. A restart can fail as well.

    Infinite where hardly anything would last: to play that through would take as long.
    """
    if expected_seconds(work, interval, f) > HOPELESS * work:
        return math.inf
    clock, done, until_failure = 0.0, 0.0, draws.exponential(f.mtbf)
    while True:
        pieces = math.ceil((work - done) / interval)
        left = work - done + pieces * f.write
        if until_failure >= left:
            return clock + left
        done += interval * min(int(until_failure // (interval + f.write)), pieces - 1)
        clock, until_failure = clock + until_failure, draws.exponential(f.mtbf)
        while until_failure <= f.restart:
            clock, until_failure = clock + until_failure, draws.exponential(f.mtbf)
        clock, until_failure = clock + f.restart, until_failure - f.restart


@dataclass(frozen=True)
class Coverage:
    ranks: tuple[int, ...]  # in the order in which the world had these sizes
    steps: int  # taken, those that failures undid included
    lasting: int  # steps of the run as it ends
    epochs: int
    exact: bool  # every sample exactly once in each of the epochs


def cover(
    plan: Sampler, epochs: int, ranks: Sequence[int], fail_every: float = 0.0, save_every: int = 1, seed: int = 0
) -> Coverage:
    """Every rank asks for its part of every step. After a failure the world has the next size of `ranks` and goes on
    from the last save; what lasts has to be every sample once per epoch, as if nothing had happened."""
    draws, total = np.random.default_rng(seed), -(-epochs * plan.count // plan.batch_size)
    seen: dict[int, np.ndarray] = {}
    step, taken, world, sizes = 0, 0, 0, [ranks[0]]
    while step < total:
        if fail_every and draws.random() < 1 / fail_every:
            step, world = step // save_every * save_every, world + 1
            sizes.append(ranks[world % len(ranks)])
        keys = [plan.at(step, (rank, sizes[-1])) for rank in range(sizes[-1])]
        seen[step] = np.stack([np.concatenate([getattr(p, key) for p in keys]) for key in ("epoch", "index")])
        step, taken = step + 1, taken + 1
    epoch, index = np.concatenate([seen[s] for s in range(total)], axis=1)
    everything = np.arange(plan.count)
    exact = all(np.array_equal(np.sort(index[epoch == e]), everything) for e in range(epochs))
    return Coverage(tuple(sizes), taken, total, epochs, exact)


def cover_all(images: int, batch: int, ranks: Iterable[int] = RANKS, seed: int = 0) -> list[Coverage]:
    """Each number of ranks through an epoch, and the larger half of them in turn through three with failures.

    More images than a few steps' would show nothing new: order and shares are the same functions for all.
    """
    plan, sizes = Sampler(min(images, 2 * batch + 7), batch, seed), [n for n in ranks if n <= batch]
    failing = cover(plan, 3, sizes[len(sizes) // 2 :], fail_every=3, save_every=2, seed=seed)
    return [*(cover(plan, 1, [n]) for n in sizes), failing]

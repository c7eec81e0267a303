"""Time of a step: matrix products, memory traffic and communication.

    compute   FLOPs of matrix products / their rate + bytes of element-wise work / their rate
    DDP       a ring all-reduce sends 2 (N-1)/N times the gradients during the backward pass
    FSDP      weights are all-gathered for the forward and the backward pass, gradients are reduce-scattered:
              (N-1)/N times each, per micro-batch; communication overlaps with computation

Bytes are those of ring collectives, latencies those of tree collectives, since libraries choose the better one.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from vitkit.model import ViTConfig
from vitkit.model.summary import summarize
from vitkit.plan.activations import FLOAT, activations
from vitkit.plan.job import Job
from vitkit.plan.parameter_count import parameters
from vitkit.training.muon import ROUNDS

BUCKET = 25 * 2**20  # bytes of gradients in one all-reduce of DDP

# Memory accesses per saved activation by element-wise operations: written and read in the forward pass, read in the
# backward pass, its gradient written and read. Calibration corrects this estimate.
ACCESSES = 5
UPDATE_ACCESSES = {"adamw": 9, "muon": 8}  # clipping reads and scales gradients; AdamW reads four and writes three
EMA_ACCESSES = 3


@dataclass(frozen=True)
class Rates:
    """Rates of one rank. `memory`: bytes per second of all work except matrix products."""

    flops: float
    memory: float = math.inf


@dataclass(frozen=True)
class Network:
    bandwidth: float  # bytes per second in each direction
    latency: float = 10e-6  # seconds per message


@dataclass(frozen=True)
class StepTime:
    """Seconds."""

    forward: float
    backward: float
    update: float
    communication: float  # total
    waiting: float  # the part that does not overlap with computation

    @property
    def seconds(self) -> float:
        return self.forward + self.backward + self.update + self.waiting


@lru_cache(maxsize=64)
def macs(config: ViTConfig) -> tuple[int, int]:
    """Return the multiply-adds per image of one block, and of all other layers."""
    one, two = (summarize(config.replace(depth=depth), depth=0)[0].macs for depth in (1, 2))
    return two - one, 2 * one - two


def flops(job: Job) -> tuple[int, int]:
    """Return the FLOPs of the forward and the backward pass of one rank. A backward pass costs two forward passes, and
    activation checkpointing adds one more."""
    block, rest = macs(job.config)
    blocks = job.config.depth * block
    recomputed = blocks if job.checkpoint else 0
    return 2 * job.rank_batch * (blocks + rest), 2 * job.rank_batch * (2 * (blocks + rest) + recomputed)


def update_flops(job: Job) -> int:
    """Return the FLOPs of Muon's Newton–Schulz iterations: x xᵀ, its square, and their product with x."""
    if job.optimizer == "adamw":
        return 0
    shapes = [(m.count, *sorted((m.rows, m.columns))) for m in parameters(job.config).matrices]
    return sum(count * ROUNDS * (4 * short**2 * long + 2 * short**3) for count, short, long in shapes)


def traffic(job: Job) -> tuple[int, int]:
    """Return the bytes moved by element-wise work in the forward and backward passes, and in the update."""
    saved = activations(job)
    passes = ACCESSES * job.rank_batch * (saved.total + (saved.block * saved.depth // 2 if job.checkpoint else 0))
    accesses = UPDATE_ACCESSES[job.optimizer] + (EMA_ACCESSES if job.ema else 0)
    return passes, FLOAT * accesses * parameters(job.config).total // job.shards


@dataclass(frozen=True)
class Volume:
    """Bytes that one rank sends in a step, and the number of collectives."""

    forward: int
    backward: int
    calls: int

    @property
    def total(self) -> int:
        return self.forward + self.backward


def communication_volume(job: Job) -> Volume:
    """Return the traffic of a step. DDP communicates once per step, FSDP once per micro-batch."""
    n, count = job.ranks, parameters(job.config).total
    if n == 1:
        return Volume(0, 0, 0)
    if job.shard == "none":
        gradients = FLOAT * count
        return Volume(0, 2 * (n - 1) * gradients // n, math.ceil(gradients / BUCKET))
    micro_batches = math.ceil(job.rank_batch / job.forward_batch)
    gather, scatter = ((n - 1) * size * count // n for size in (job.matmul_bytes, FLOAT))
    calls = micro_batches * 3 * (job.config.depth + 1)
    return Volume(micro_batches * gather, micro_batches * (gather + scatter), calls)


def step_time(job: Job, rates: Rates, network: Network | None = None) -> StepTime:
    forward, backward = (part / rates.flops for part in flops(job))
    passes, update = (part / rates.memory for part in traffic(job))
    forward, backward = forward + passes / 3, backward + 2 * passes / 3
    update += update_flops(job) / rates.flops
    if job.ranks == 1 or network is None:
        return StepTime(forward, backward, update, 0.0, 0.0)
    sent = communication_volume(job)
    delay = sent.calls * 2 * math.ceil(math.log2(job.ranks)) * network.latency
    before, during = sent.forward / network.bandwidth, sent.backward / network.bandwidth
    early = delay / 3 if sent.forward else 0.0  # one of three collectives belongs to the forward pass
    waiting = max(0.0, before + early - forward) + max(0.0, during + delay - early - backward)
    return StepTime(forward, backward, update, before + during + delay, waiting)

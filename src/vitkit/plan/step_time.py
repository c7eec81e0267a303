"""How long a step takes: what is multiplied, what is moved through memory, what is sent between ranks.

    compute   FLOPs of the products / their rate + bytes of all else / their rate
    DDP       a ring all-reduce sends 2 (N-1)/N times the gradients, while the backward runs
    FSDP      weights are gathered for the forward and again for the backward, gradients are reduced and scattered:
              (N-1)/N times each, per micro-batch; hidden behind what is computed as far as that lasts

Bytes are those of a ring, delays those of a tree: what collectives reach that choose the better one.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from vitkit.model import ViTConfig
from vitkit.model.summary import summarize
from vitkit.plan.activations import FLOAT, activations
from vitkit.plan.job import Job
from vitkit.plan.parameters import parameters
from vitkit.training.muon import ROUNDS

BUCKET = 25 * 2**20  # bytes of gradients that DDP sends at once

# How often what autograd keeps goes through memory in a step, by the element-wise operations: written and read in
# the forward, read in the backward, its gradient written and read. Calibration absorbs what is wrong with the number.
TOUCHES = 5
UPDATE_TOUCHES = {"adamw": 9, "muon": 8}  # clipping reads and scales gradients; AdamW reads four and writes three
EMA_TOUCHES = 3


@dataclass(frozen=True)
class Rates:
    """What one rank reaches. `memory`: bytes per second of everything that is no matrix product."""

    flops: float
    memory: float = math.inf


@dataclass(frozen=True)
class Network:
    bandwidth: float  # bytes per second that a rank sends while it receives as many
    latency: float = 10e-6  # seconds of one message


@dataclass(frozen=True)
class StepTime:
    """Seconds."""

    forward: float
    backward: float
    update: float
    communication: float  # in all
    waiting: float  # what of it nothing hides

    @property
    def seconds(self) -> float:
        return self.forward + self.backward + self.update + self.waiting


@lru_cache(maxsize=64)
def macs(config: ViTConfig) -> tuple[int, int]:
    """(of one block, of all that is not in a block), per image."""
    one, two = (summarize(config.replace(depth=depth), depth=0)[0].macs for depth in (1, 2))
    return two - one, 2 * one - two


def flops(job: Job) -> tuple[int, int]:
    """(forward, backward) of one rank's share of a step. A backward is two forwards; checkpointing adds one more."""
    block, rest = macs(job.config)
    blocks = job.config.depth * block
    again = blocks if job.checkpoint else 0
    return 2 * job.share * (blocks + rest), 2 * job.share * (2 * (blocks + rest) + again)


def update_flops(job: Job) -> int:
    """Muon's Newton–Schulz rounds: x xᵀ, its square, and their product with x, of every matrix."""
    if job.optimizer == "adamw":
        return 0
    total = 0
    for matrix in parameters(job.config).matrices:
        short, long = sorted((matrix.rows, matrix.columns))
        total += matrix.times * ROUNDS * (4 * short**2 * long + 2 * short**3)
    return total


def traffic(job: Job) -> tuple[int, int]:
    """Bytes that element-wise work moves: (of the passes, of the update)."""
    kept, cut = activations(job), job.ranks if job.shard == "full" else 1
    passes = TOUCHES * job.share * (kept.whole + (kept.block * kept.depth // 2 if job.checkpoint else 0))
    touches = UPDATE_TOUCHES[job.optimizer] + (EMA_TOUCHES if job.ema else 0)
    return passes, FLOAT * touches * parameters(job.config).total // cut


@dataclass(frozen=True)
class Volume:
    """Bytes that one rank sends in a step, and in how many collectives."""

    forward: int
    backward: int
    calls: int

    @property
    def total(self) -> int:
        return self.forward + self.backward


def volume(job: Job) -> Volume:
    """DDP speaks once per step, whatever the micro-batches; FSDP for every one of them, or it would hold all."""
    n, count = job.ranks, parameters(job.config).total
    if n == 1:
        return Volume(0, 0, 0)
    if job.shard == "none":
        gradients = FLOAT * count
        return Volume(0, 2 * (n - 1) * gradients // n, math.ceil(gradients / BUCKET))
    turns = math.ceil(job.share / job.at_a_time)
    gather, scatter = ((n - 1) * size * count // n for size in (job.narrow, FLOAT))
    return Volume(turns * gather, turns * (gather + scatter), turns * 3 * (job.config.depth + 1))


def step_time(job: Job, rates: Rates, network: Network | None = None) -> StepTime:
    forward, backward = (part / rates.flops for part in flops(job))
    passes, update = (part / rates.memory for part in traffic(job))
    forward, backward = forward + passes / 3, backward + 2 * passes / 3
    update += update_flops(job) / rates.flops
    if job.ranks == 1 or network is None:
        return StepTime(forward, backward, update, 0.0, 0.0)
    sent = volume(job)
    delay = sent.calls * 2 * math.ceil(math.log2(job.ranks)) * network.latency
    before, during = sent.forward / network.bandwidth, sent.backward / network.bandwidth
    early = delay / 3 if sent.forward else 0.0  # one collective of three is the forward's
    waiting = max(0.0, before + early - forward) + max(0.0, during + delay - early - backward)
    return StepTime(forward, backward, update, before + during + delay, waiting)

"""Memory of one rank, part by part, and the phase of a step in which it peaks.

    backward    activations are freed and gradients allocated block by block: the peak is at the first or last block;
                with gradients of earlier micro-batches, at the first
    update      all gradients, and the temporaries of the optimizer
    save        on a CPU: the state again as the bytes of the file, and once more while they are concatenated
    validate    inference on 256 images at a time (training/results.py)

Activations are a formula of the config (`activations.py`); parameters and optimizer state are counted.
"""

from dataclasses import dataclass

from vitkit.plan.activations import FLOAT, activations, pixels, tokens
from vitkit.plan.job import Job
from vitkit.plan.parameter_count import Parameters, optimizer_bytes, parameters
from vitkit.training.results import EVAL_BATCH_SIZE

MIB, GIB = 2**20, 2**30

# A process with torch and its libraries loaded (benchmarks/results/plan.txt: "before", and further modules of the
# command). The CUDA context with the workspaces of its libraries is not measured here.
BASE = {"cpu": 450 * MIB, "cuda": 800 * MIB}

# glibc raises the size above which it maps a block separately, up to 32 MiB. Smaller blocks stay in its heap and
# leave holes that later tensors do not fill: 10 % more memory for ViT-S, nearly twice as much for a small model with
# checkpointing. With a fixed threshold, freed blocks return to the system and these estimates hold
# (benchmarks/results/plan.txt shows both).
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "131072"}


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank. `phases` are the peaks of each phase on top of what is always allocated."""

    parameters: int
    optimizer: int
    ema: int
    buckets: int  # the copy of the gradients that DDP sends
    gradients: int  # one set for each core that shares a step
    activations: int
    phases: dict[str, int]
    base: int

    @property
    def peak_phase(self) -> str:
        return max(self.phases, key=lambda name: self.phases[name])

    @property
    def peak(self) -> int:
        permanent = self.base + self.parameters + self.optimizer + self.ema + self.buckets
        return permanent + self.phases[self.peak_phase]


def memory(job: Job, whole_run: bool = True, base: int | None = None) -> Memory:
    """Estimate the memory of one rank. `whole_run=False` leaves out saving and validation."""
    p = parameters(job.config)
    weights, optimizer = _divide(FLOAT * p.total, job.shards), _divide(optimizer_bytes(job), job.shards)
    ema = weights if job.ema else 0
    phases = {"backward": _backward(job, p), "update": weights + _update(job, p)}
    if whole_run:
        phases["validate"] = EVAL_BATCH_SIZE * _inference(job)
        if job.device == "cpu":
            phases["save"] = 2 * (weights + optimizer + ema)
    return Memory(
        weights, optimizer, ema,
        buckets=weights if job.ranks > 1 and job.shard == "none" else 0,
        gradients=job.replicas * weights,
        activations=_saved(job, p),
        phases=phases,
        base=BASE[job.device] if base is None else base,
    )  # fmt: skip


def _divide(count: int, shards: int) -> int:
    return -(-count // shards)


def _saved(job: Job, p: Parameters) -> int:
    """Activations of a forward pass and autocast's copies of the weights. Sharded copies are freed after each block."""
    a = activations(job)
    copies = job.replicas * job.matmul_bytes * p.in_matmuls if job.matmul_bytes != FLOAT and job.shard == "none" else 0
    return job.forward_batch * (a.checkpointed if job.checkpoint else a.total) + copies


def _backward(job: Job, p: Parameters) -> int:
    a, images = activations(job), job.forward_batch
    inputs = job.rank_batch * pixels(job.config) * (1 + 2 * FLOAT)  # uint8, float, and mixed
    transient = images * _transient(job) + _gathered(job, p)
    head, largest = _divide(FLOAT * p.head, job.shards), FLOAT * p.largest_matrix.size
    if job.accumulates:  # all gradients exist, and a new one is computed before it is added
        others = (job.replicas - 1) * FLOAT * p.total  # gradients of the other cores, complete at the end
        highest = max(_saved(job, p) + job.replicas * largest, others + images * a.embed)
        return inputs + transient + _divide(FLOAT * p.total, job.shards) + highest
    at_first_block = _saved(job, p) + job.replicas * (head + largest)
    gradients = head + (p.depth - 1) * _divide(FLOAT * p.block, job.shards)
    at_last_block = images * (a.embed + a.block) + job.replicas * gradients
    return inputs + transient + max(at_first_block, at_last_block)


def _transient(job: Job) -> int:
    """Bytes per image of the gradient of a block's output and of the gradient inside its MLP."""
    c = job.config
    return tokens(c) * (FLOAT * c.width + job.matmul_bytes * c.mlp_width * (2 if c.mlp == "swiglu" else 1))


def _gathered(job: Job, p: Parameters) -> int:
    """FSDP: gathered weights of this block, the next one, embedding and head; gradients of a block before sharding."""
    if job.shards == 1:
        return 0
    return job.matmul_bytes * (2 * p.block + p.embed + p.head) + FLOAT * p.block


def _update(job: Job, p: Parameters) -> int:
    """Temporaries of the optimizer. AdamW works in place. Muon stacks all matrices of a shape three times, and their
    Gram matrices twice; sharded matrices are gathered one at a time."""
    if job.optimizer == "adamw":
        return 0
    return FLOAT * max(
        (m.count if job.shards == 1 else 1) * (3 * m.size + 2 * min(m.rows, m.columns) ** 2) for m in p.matrices
    )


def _inference(job: Job) -> int:
    """Bytes per image without autograd: the tokens and the widest intermediate of a block."""
    c, inner = job.config, job.config.heads * job.config.head_width
    wide = c.mlp_width * (4 if c.mlp == "swiglu" else 2)
    return tokens(c) * (2 * FLOAT * c.width + job.matmul_bytes * max(4 * inner, wide)) + FLOAT * pixels(c)

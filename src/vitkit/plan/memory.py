"""How much memory one rank takes, part by part, and when it takes most.

A step has phases, and the peak is that of the highest:

    backward    block by block activations go and gradients come: highest at its first or at its last block; where
                earlier micro-batches left gradients, at its first
    update      all gradients, and what the optimizer works with
    save        on a CPU: the state once more as the bytes of the file, and again while they are put together
    validate    256 images at a time (training/results.py), nothing kept

What autograd keeps is a formula of the config (`activations.py`); parameters and optimizer state are counted.
"""

from dataclasses import dataclass

from vitkit.model import ViTConfig
from vitkit.plan.activations import FLOAT, activations, tokens
from vitkit.plan.job import Job
from vitkit.plan.parameters import Parameters, optimizer_bytes, parameters
from vitkit.training.results import EVAL_BATCH_SIZE

MIB, GIB = 2**20, 2**30

# Before any of this: a process with torch and its libraries loaded (benchmarks/results/plan.txt: "before", and what a
# command loads besides); a CUDA context with the workspaces of its libraries, not measured here.
BASE = {"cpu": 450 * MIB, "cuda": 800 * MIB}

# On a CPU glibc raises the size from which it maps a block of its own, up to 32 MiB, and keeps what is smaller in its
# heap, with holes that the next tensors do not fill: a tenth more for ViT-S, nearly twice as much for a small model
# with checkpointing. With the size held where it starts, freed blocks go back and the numbers here hold
# (benchmarks/results/plan.txt shows both).
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "131072"}


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank. `phases`: what each takes at its highest, on top of what always stays."""

    parameters: int
    optimizer: int
    ema: int
    buckets: int  # the gradients once more, as DDP sends them
    gradients: int  # once for each core that a step is spread over
    activations: int
    phases: dict[str, int]
    base: int

    @property
    def highest(self) -> str:
        return max(self.phases, key=lambda name: self.phases[name])

    @property
    def peak(self) -> int:
        stays = self.base + self.parameters + self.optimizer + self.ema + self.buckets
        return stays + self.phases[self.highest]


def memory(job: Job, whole_run: bool = True, base: int | None = None) -> Memory:
    """`whole_run=False`: training steps alone, without saving and validating."""
    p, cut = parameters(job.config), _cut(job)
    held, optimizer = _part(FLOAT * p.total, cut), _part(optimizer_bytes(job), cut)
    ema = held if job.ema else 0
    phases = {"backward": _backward(job, p), "update": held + _update(job, p)}
    if whole_run:
        phases["validate"] = EVAL_BATCH_SIZE * _answer(job)
        if job.device == "cpu":
            phases["save"] = 2 * (held + optimizer + ema)
    return Memory(
        held, optimizer, ema,
        buckets=held if job.ranks > 1 and job.shard == "none" else 0,
        gradients=job.parts * held,
        activations=_kept(job, p),
        phases=phases,
        base=BASE[job.device] if base is None else base,
    )  # fmt: skip


def _cut(job: Job) -> int:
    return job.ranks if job.shard == "full" else 1


def _part(count: int, cut: int) -> int:
    return -(-count // cut)


def _kept(job: Job, p: Parameters) -> int:
    """By the forward, for the backward. Autocast's copies of the weights too; sharded ones go block by block."""
    a = activations(job)
    copies = job.parts * job.narrow * p.in_products if job.narrow != FLOAT and job.shard == "none" else 0
    return job.at_a_time * (a.checkpointed if job.checkpoint else a.whole) + copies


def _backward(job: Job, p: Parameters) -> int:
    a, images, cut = activations(job), job.at_a_time, _cut(job)
    inputs = job.share * _pixels(job.config) * (1 + 2 * FLOAT)  # bytes as read, as numbers, and mixed
    passing = images * _passing(job) + _gathered(job, p)
    head, largest = _part(FLOAT * p.head, cut), FLOAT * p.largest_matrix.size
    if job.accumulates:  # all gradients are there, and one is made that will be added to its own
        others = (job.parts - 1) * FLOAT * p.total  # of the other cores: all of theirs are there at the end
        highest = max(_kept(job, p) + job.parts * largest, others + images * a.embed)
        return inputs + passing + _part(FLOAT * p.total, cut) + highest
    at_first_block = _kept(job, p) + job.parts * (head + largest)
    gradients = head + (p.depth - 1) * _part(FLOAT * p.block, cut)
    at_last_block = images * (a.embed + a.block) + job.parts * gradients
    return inputs + passing + max(at_first_block, at_last_block)


def _passing(job: Job) -> int:
    """Per image: the gradient of the block's output, and the one that goes back through the MLP."""
    c = job.config
    return tokens(c) * (FLOAT * c.width + job.narrow * c.mlp_width * (2 if c.mlp == "swiglu" else 1))


def _gathered(job: Job, p: Parameters) -> int:
    """FSDP: weights of this block, of the next and of all that is in none, and a block's gradients before the cut."""
    if _cut(job) == 1:
        return 0
    return job.narrow * (2 * p.block + p.embed + p.head) + FLOAT * p.block


def _update(job: Job, p: Parameters) -> int:
    """AdamW works in place. Muon takes all matrices of one shape together: three times, and their Gram matrices twice;
    where they are cut it puts them together one at a time."""
    if job.optimizer == "adamw":
        return 0
    return FLOAT * max(
        (m.times if _cut(job) == 1 else 1) * (3 * m.size + 2 * min(m.rows, m.columns) ** 2) for m in p.matrices
    )


def _answer(job: Job) -> int:
    """Per image, without autograd: the tokens, and the widest of what a block makes of them."""
    c, inner = job.config, job.config.heads * job.config.head_width
    wide = c.mlp_width * (4 if c.mlp == "swiglu" else 2)
    return tokens(c) * (2 * FLOAT * c.width + job.narrow * max(4 * inner, wide)) + FLOAT * _pixels(c)


def _pixels(c: ViTConfig) -> int:
    return c.in_channels * c.image_size[0] * c.image_size[1]

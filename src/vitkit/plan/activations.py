"""What autograd keeps from the forward for the backward, in bytes per image: a formula of the config.

Every term is a tensor that some backward reads; `tests/plan/test_activations.py` counts those that autograd really
keeps and compares. Letters: t tokens, d width, i = heads × head width, h heads, m width of the MLP; `w` bytes of a
number on the residual path (float32 throughout), `n` of one in a matrix product (2 under bf16 autocast).

    block     norm inputs 2·w·d + 2·2·4, their outputs as the products read them 2·n·d
              attention   n·3i (q, k, v) + n·i (output) + 4·h (log-sum-exp of the fused kernel; n·h·t where the plain
                          one runs: its weights)
              MLP         n·m before and n·m after the activation
"""

from dataclasses import dataclass

from vitkit.model import ViTConfig
from vitkit.model.sdpa import uses_unfused_backward
from vitkit.plan.job import Job

FLOAT = 4
STATISTICS = 2 * FLOAT  # mean and 1/σ of a LayerNorm, per row


@dataclass(frozen=True)
class Activations:
    """Bytes per image."""

    embed: int
    block: int
    block_input: int  # all that a checkpointed block keeps
    head: int
    depth: int

    @property
    def whole(self) -> int:
        return self.embed + self.depth * self.block + self.head

    @property
    def checkpointed(self) -> int:
        """At its highest: while one block's forward is computed again, for its backward."""
        return self.embed + self.depth * self.block_input + self.block + self.head


def activations(job: Job) -> Activations:
    c = job.config
    t = tokens(c)
    return Activations(
        embed=_embed(c, t, job.narrow),
        block=t * (_attention(job, t) + _mlp(c, job.narrow) + 2 * _branch_ends(c, job.narrow)),
        block_input=t * FLOAT * c.width,
        head=_head(c, t, job.narrow),
        depth=c.depth,
    )


def tokens(c: ViTConfig) -> int:
    return c.prefix + c.grid[0] * c.grid[1]


def _attention(job: Job, t: int) -> int:
    c, n = job.config, job.narrow
    inner = c.heads * c.head_width
    plain = job.device == "cpu" and n != FLOAT and uses_unfused_backward(t, c.attention_dropout)
    kernel = FLOAT if job.device == "cpu" and not plain else n  # model/sdpa.py: else a CPU trains it in float32
    kept = FLOAT * c.width + STATISTICS + n * c.width  # norm1: its input and, for qkv, its output
    kept += 4 * kernel * inner + (n * t if plain else FLOAT) * c.heads  # weights, or the log-sum-exp of their rows
    if c.qk_norm:
        kept += 2 * STATISTICS * c.heads
    if plain:
        kept += 3 * n * inner if c.qk_norm else 0  # what was normalised, as the norms' backward reads it
    elif kernel != n:
        kept += n * inner  # the output as the projection reads it
    elif c.qk_norm or c.position == "rotary":  # new queries and keys; the old ones stay, for values lie beside them
        kept += 2 * n * inner + n * inner  # and an output in another order
    if c.attention_dropout:  # the plain kernel: weights, what dropout left of them, and its mask
        kept += 3 * kernel * c.heads * t
    return kept


def _mlp(c: ViTConfig, n: int) -> int:
    widths = {"gelu": 2, "gelu_tanh": 2, "quick_gelu": 3, "swiglu": 4}[c.mlp]
    dropped = 1 if c.dropout else 0  # the mask in the middle
    return FLOAT * c.width + STATISTICS + n * c.width + n * c.mlp_width * (widths + dropped)


def _branch_ends(c: ViTConfig, n: int) -> int:
    """What stands between a branch and its addition: the mask of dropout, the input of LayerScale."""
    return n * c.width * (bool(c.dropout) + (c.layer_scale is not None))


def _embed(c: ViTConfig, t: int, n: int) -> int:
    pixels = c.in_channels * c.image_size[0] * c.image_size[1]
    kept = n * pixels if n != FLOAT or (c.patch_embed == "linear" and not c.stem) else 0  # a copy of the images
    height, width = c.image_size
    for channels in c.stem:
        height, width = -(-height // 2), -(-width // 2)
        kept += 2 * n * channels * height * width  # before and after the GELU
    if c.stem and c.patch_embed == "linear":
        kept += n * c.stem[-1] * height * width
    if c.dropout:
        kept += FLOAT * t * c.width
    if c.pre_norm:
        kept += t * (FLOAT * c.width + STATISTICS)
    return kept


def _head(c: ViTConfig, t: int, n: int) -> int:
    kept = t * (FLOAT * c.width + STATISTICS) if c.final_norm == "tokens" else 0
    if c.final_norm == "pooled":
        kept += FLOAT * c.width + STATISTICS
    inner = c.heads * c.head_width
    if c.pooling == "attention":  # one query per image; all tokens as keys and values
        kept += t * n * (c.width + 2 * inner) + n * (2 * inner + 3 * c.width + 2 * c.mlp_width)
    elif c.pooling == "cls" and n == FLOAT:
        kept += t * FLOAT * c.width  # one token is read, and with it all stay
    else:
        kept += n * c.pooled_width
    kept += n * c.head_hidden
    return kept + 2 * FLOAT * c.num_classes  # log-softmax and targets

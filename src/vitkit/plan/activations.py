"""Bytes per image that autograd saves in the forward pass for the backward pass, as a formula of the config.

Every term is a tensor that a backward reads; `tests/plan/test_activations.py` compares with what autograd saves.
Letters: t tokens, d width, i = heads × head width, h heads, m width of the MLP; `w` bytes of a number in the residual
stream (always float32), `n` bytes of one in a matrix product (2 under bf16 autocast).

    block     inputs of the norms 2·w·d + 2·2·4, their outputs as the matrix products read them 2·n·d
              attention   n·3i (q, k, v) + n·i (output) + 4·h (log-sum-exp of the fused kernel; without it, its
                          weights n·h·t)
              MLP         n·m before and n·m after the activation function
"""

from dataclasses import dataclass

from vitkit.model import ViTConfig
from vitkit.model.sdpa import uses_unfused_backward
from vitkit.plan.job import Job

FLOAT = 4
MASK = 1  # of dropout, per number
STATISTICS = 2 * FLOAT  # mean and 1/σ of a LayerNorm, per token


@dataclass(frozen=True)
class Activations:
    """Bytes per image."""

    embed: int
    block: int
    block_input: int  # all that a checkpointed block saves
    head: int
    depth: int

    @property
    def total(self) -> int:
        return self.embed + self.depth * self.block + self.head

    @property
    def checkpointed(self) -> int:
        """The peak with activation checkpointing: one block is recomputed for its backward."""
        return self.embed + self.depth * self.block_input + self.block + self.head


def activations(job: Job) -> Activations:
    c = job.config
    t = tokens(c)
    return Activations(
        embed=_embed(c, t, job.matmul_bytes),
        block=t * (_attention(job, t) + _mlp(c, job.matmul_bytes) + 2 * _branch_ends(c, job.matmul_bytes)),
        block_input=t * FLOAT * c.width,
        head=_head(c, t, job.matmul_bytes),
        depth=c.depth,
    )


def tokens(c: ViTConfig) -> int:
    return c.prefix + c.grid[0] * c.grid[1]


def pixels(c: ViTConfig) -> int:
    return c.in_channels * c.image_size[0] * c.image_size[1]


def _attention(job: Job, t: int) -> int:
    c, n = job.config, job.matmul_bytes
    inner = c.heads * c.head_width
    unfused = (job.device == "cpu" and n != FLOAT and uses_unfused_backward(t)) or c.attention_dropout > 0
    kernel = FLOAT if job.device == "cpu" and not unfused else n  # on a CPU, model/sdpa.py trains in float32
    saved = _norm(c, c.width) + n * c.width  # norm1: its input and, for qkv, its output
    saved += 4 * kernel * inner + (n * t if unfused else FLOAT) * c.heads  # weights, or the log-sum-exp of their rows
    if c.qk_norm:
        saved += 2 * _statistics(c, c.head_width) * c.heads
    if unfused:
        saved += 3 * n * inner if c.qk_norm else 0  # the inputs of the norms
    elif kernel != n:
        saved += n * inner  # the output, converted for the projection
    elif c.qk_norm or c.rotates:  # new queries and keys; the old ones share memory with the values
        saved += 2 * n * inner + n * inner  # and the output in another memory layout
    if c.attention_dropout:  # the weights after dropout, and its mask
        saved += (n + MASK) * c.heads * t
    return saved + (_norm(c, inner, n) if c.sub_norm == "all" else 0)


def _mlp(c: ViTConfig, n: int) -> int:
    widths = {"gelu": 2, "gelu_tanh": 2, "quick_gelu": 3, "swiglu": 4}[c.mlp]
    mask = MASK if c.dropout else 0
    sub_norm = _norm(c, c.mlp_width, n) if c.sub_norm != "none" else 0
    return _norm(c, c.width) + n * c.width + c.mlp_width * (n * widths + mask) + sub_norm


def _norm(c: ViTConfig, width: int, n: int = FLOAT) -> int:
    """Bytes per token that a norm saves: its input, of `n` bytes per number, and its statistics."""
    return n * width + _statistics(c, width)


def _statistics(c: ViTConfig, width: int) -> int:
    """RMSNorm is not one kernel: it saves 1/σ and the scaled input."""
    return FLOAT + FLOAT * width if c.norm == "rms" else STATISTICS


def _branch_ends(c: ViTConfig, n: int) -> int:
    """The mask of dropout and the input of LayerScale, before a branch is added to the residual stream."""
    return c.width * (MASK * bool(c.dropout) + n * (c.layer_scale is not None))


def _embed(c: ViTConfig, t: int, n: int) -> int:
    saved = n * pixels(c) if n != FLOAT or (c.patch_embed == "linear" and not c.stem) else 0  # a copy of the images
    height, width = c.image_size
    for channels in c.stem:
        height, width = -(-height // 2), -(-width // 2)
        saved += 2 * n * channels * height * width  # before and after the GELU
    if c.stem and c.patch_embed == "linear":
        saved += n * c.stem[-1] * height * width
    if c.dropout:
        saved += MASK * t * c.width
    if c.pre_norm:
        saved += t * _norm(c, c.width)
    if c.patch_norm:
        saved += (t - c.prefix) * _norm(c, c.width, n)
    return saved


def _head(c: ViTConfig, t: int, n: int) -> int:
    saved = t * _norm(c, c.width) if c.final_norm == "tokens" else 0
    if c.final_norm == "pooled":
        saved += _norm(c, c.width)
    inner = c.heads * c.head_width
    if c.pooling.startswith("attention"):  # one query per image; all tokens, or all patches, as keys and values
        mlp_width = c.pool_mlp_width or c.mlp_width
        saved += t * n * (c.width + 2 * inner) + n * (2 * inner + 3 * c.width + 2 * mlp_width)
    elif c.pooling == "cls" and n == FLOAT:
        saved += t * FLOAT * c.width  # one token is used, but its view keeps all of them alive
    else:
        saved += n * c.pooled_width
    saved += n * c.head_hidden
    return saved + 2 * FLOAT * c.num_classes  # log-softmax and targets

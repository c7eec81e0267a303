"""softmax(q kᵀ / √e) v (eq. 6 and 7) in one fused kernel, which never holds the t × t weights.

The exception to taking it as it comes: training in bf16 on a CPU, where the fused kernel's backward is slow. Where the
CPU has units for bf16, and the weights are not many, plain products take half the time; else float32 does better,
conversions included. `python benchmarks/attention.py` prints the table for a machine, kept in
benchmarks/results/attention.txt.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitkit.runtime.device import BF16, bf16_support

SHORT = 256  # tokens up to which plain products hold no more than float32 copies of queries, keys and values would


_HAS_NATIVE_BF16 = bf16_support() > BF16.EMULATED  # asked once: a compiler cannot trace the question


def attend(
    q: Float[Tensor, "b h t e"], k: Float[Tensor, "b h t e"], v: Float[Tensor, "b h t e"], dropout: float = 0.0
) -> Float[Tensor, "b h t e"]:
    if not _backward_is_slow(q):
        return fused(q, k, v, dropout)
    return plain(q, k, v) if uses_unfused_backward(q.shape[2], dropout) else in_float32(q, k, v, dropout)


def uses_unfused_backward(tokens: int, dropout: float = 0.0) -> bool:
    """In bf16 on this CPU."""
    return _HAS_NATIVE_BF16 and tokens <= SHORT and not dropout


def fused(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)


def in_float32(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    with torch.autocast(q.device.type, enabled=False):
        return fused(q.float(), k.float(), v.float(), dropout).to(v.dtype)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.autocast(q.device.type, enabled=False):
        return ((q / math.sqrt(q.shape[3])) @ k.mT).softmax(dim=-1) @ v


def _backward_is_slow(q: Tensor) -> bool:
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.requires_grad and torch.is_grad_enabled()

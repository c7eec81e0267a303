"""Compute softmax(q kᵀ / √e) v (eq. 6 and 7) in the fastest exact kernel, which never stores the t × t weights.

The fused kernel is used everywhere except for bf16 training on a CPU, where its backward is slow. There, plain products
are twice as fast if the CPU has bf16 instructions and the sequence is short; otherwise float32 is faster, conversions
included. `python benchmarks/attention.py` prints the measurements; benchmarks/results/attention.txt contains one run.
Attention dropout uses plain products too, because no fused kernel can draw per image (dropout.py).
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitkit.model.dropout import Dropout
from vitkit.runtime.device import BF16, bf16_support

# Called with q and k before the kernel runs. If it returns weights, the output is computed from them, in the graph.
Capture = Callable[[Tensor, Tensor], Tensor | None]

SHORT = 256  # tokens up to which the weights need no more memory than float32 copies of q, k and v would

_HAS_NATIVE_BF16 = bf16_support() > BF16.EMULATED  # evaluated at import because a compiler cannot trace the call


def attend(
    q: Float[Tensor, "b h q e"],
    k: Float[Tensor, "b h t e"],
    v: Float[Tensor, "b h t e"],
    dropout: Dropout | None = None,
    capture: Capture | None = None,
) -> Float[Tensor, "b h q e"]:
    """Return softmax(q kᵀ / √e) v. This is the one place where attention can be captured."""
    if capture is not None and (weights := capture(q, k)) is not None:
        return (weights if dropout is None else dropout(weights)).to(v.dtype) @ v
    if dropout is not None and dropout.active:
        return plain(q, k, v, dropout)
    if not _backward_is_slow(q):
        return fused(q, k, v)
    return plain(q, k, v) if uses_unfused_backward(q.shape[2]) else in_float32(q, k, v)


def uses_unfused_backward(tokens: int) -> bool:
    """Return whether bf16 training on this CPU uses plain products for sequences of this length."""
    return _HAS_NATIVE_BF16 and tokens <= SHORT


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def in_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.autocast(q.device.type, enabled=False):
        return fused(q.float(), k.float(), v.float()).to(v.dtype)


def plain(q: Tensor, k: Tensor, v: Tensor, dropout: Dropout | None = None) -> Tensor:
    with torch.autocast(q.device.type, enabled=False):
        weights = ((q / math.sqrt(q.shape[3])) @ k.mT).softmax(dim=-1)
        return (weights if dropout is None else dropout(weights)) @ v


def _backward_is_slow(q: Tensor) -> bool:
    """Attention pooling has a single query per image: any kernel is fast there."""
    bf16_on_cpu = q.device.type == "cpu" and q.dtype == torch.bfloat16
    return bf16_on_cpu and q.requires_grad and torch.is_grad_enabled() and q.shape[2] > 1

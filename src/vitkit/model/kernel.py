"""softmax(q kᵀ / √e) v (eq. 6 and 7) in one fused kernel, which never holds the t × t weights.

The one exception to taking it as it comes: training in bf16 on a CPU. The fused kernel's backward is slow there, with
bf16 units and without, and goes faster in float32, conversions included; the numbers only gain by it.
`python benchmarks/attention.py` prints the table for a machine (benchmarks/results/attention.txt).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def attend(
    q: Float[Tensor, "b h t e"], k: Float[Tensor, "b h t e"], v: Float[Tensor, "b h t e"], dropout: float = 0.0
) -> Float[Tensor, "b h t e"]:
    return in_float32(q, k, v, dropout) if _backward_is_slow(q) else fused(q, k, v, dropout)


def fused(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)


def in_float32(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    with torch.autocast(q.device.type, enabled=False):
        return fused(q.float(), k.float(), v.float(), dropout).to(v.dtype)


def _backward_is_slow(q: Tensor) -> bool:
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.requires_grad and torch.is_grad_enabled()

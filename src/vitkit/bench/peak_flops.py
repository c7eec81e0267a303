"""Measures the highest number of multiply-adds per second: one large matrix product."""

import torch

from vitkit.runtime.device import bf16_inference_pays
from vitkit.runtime.timing import medians, time_calls

SHAPE = (3152, 768, 3072)  # a batch of 16 in the first layer of ViT-B/16's MLP


def peak_macs_per_s(dtype: torch.dtype | None = None, rounds: int = 5) -> float:
    """Return the multiply-adds per second of a matrix product, by default in the fastest precision of this CPU."""
    dtype = dtype or (torch.bfloat16 if bf16_inference_pays() else torch.float32)
    rows, inner, columns = SHAPE
    a, b = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
    return rows * inner * columns / medians(time_calls({"product": lambda: a @ b}, rounds))["product"]

"""What the machine can do at most: multiply-adds per second of one large matrix product."""

import statistics
import time

import torch

from vitkit.inference.engines import bf16_pays

SHAPE = (3152, 768, 3072)  # a batch of 16 through the first layer of ViT-B/16's MLP


def peak_macs_per_s(dtype: torch.dtype = torch.float32, rounds: int = 5) -> float:
    rows, inner, columns = SHAPE
    a, b = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
    times = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - started)
    return rows * inner * columns / statistics.median(times[1:])


def best_dtype() -> torch.dtype:
    """The precision in which this machine multiplies fastest: the measure that a best path is held to."""
    return torch.bfloat16 if bf16_pays(torch.device("cpu")) else torch.float32

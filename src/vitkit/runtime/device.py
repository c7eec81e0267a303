"""Selects the device, and answers how fast bfloat16 is on it. Every other module asks this one."""

import os
from enum import IntEnum

import torch


class BF16(IntEnum):
    """Hardware support for bfloat16 arithmetic, from none to fastest."""

    EMULATED = 0  # about a tenth of the speed of float32
    VECTOR = 1  # vector instructions: AVX-512-BF16, Arm BF16
    MATRIX = 2  # matrix units: AMX tiles, GPU tensor cores


def select_device(device: str = "auto") -> str:
    """Return `device`; for "auto", return "cuda" if a GPU is available, else "cpu"."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def bf16_support(device: torch.device | str = "cpu") -> BF16:
    """Return how `device` computes in bfloat16. A CPU whose capabilities are unknown counts as EMULATED."""
    kind = torch.device(device).type
    if kind != "cpu":
        return BF16.MATRIX if kind == "cuda" else BF16.EMULATED
    if torch.cpu._is_amx_tile_supported():
        return BF16.MATRIX
    flags = [present for name, present in torch.cpu.get_capabilities().items() if "bf16" in name]
    return BF16.VECTOR if any(flags) else BF16.EMULATED


def bf16_inference_pays(device: torch.device | str = "cpu") -> bool:
    """Return True if inference is faster in bfloat16 than in float32, which is known of matrix units only."""
    return bf16_support(device) is BF16.MATRIX


def omp_threads() -> int:
    """Return the value of OMP_NUM_THREADS, or 0 if it is not set to a number."""
    value = os.environ.get("OMP_NUM_THREADS", "").strip()
    return int(value) if value.isdecimal() else 0

"""Compare attention kernels by length and precision: the table behind `vitkit.model.sdpa`.

    python benchmarks/attention.py [--rounds 5] [--images 32] > benchmarks/results/attention.txt

The kernels take turns. Times are medians, in ms, of a batch with 3 heads of width 64, as in ViT-Tiny.
"""

import argparse
from collections.abc import Callable

import torch
from heading import heading
from torch import Tensor

from vitkit.model.sdpa import fused, in_float32, plain
from vitkit.runtime.timing import medians, time_calls

TOKENS = (17, 65, 197, 577)


KERNELS = {"fused": fused, "in float32": in_float32, "plain": plain}


def forward(kernel: Callable[..., Tensor], qkv: list[Tensor]) -> Callable[[], object]:
    def run() -> None:
        with torch.inference_mode():
            kernel(*qkv)

    return run


def step(kernel: Callable[..., Tensor], qkv: list[Tensor]) -> Callable[[], object]:
    grown = [x.clone().requires_grad_() for x in qkv]
    sent = torch.randn_like(qkv[0])

    def run() -> None:
        torch.autograd.grad(kernel(*grown), grown, sent)

    return run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=32)
    asked = parser.parse_args()
    print(heading())
    print(f"{'precision':11s}{'tokens':>7s}{'':>10s}" + "".join(f"{name:>12s}" for name in KERNELS))
    for dtype in (torch.float32, torch.bfloat16):
        for tokens in TOKENS:
            torch.manual_seed(0)
            qkv = [torch.randn(asked.images, 3, tokens, 64).to(dtype) for _ in range(3)]
            for what, make in (("forward", forward), ("training", step)):
                runs = {name: make(kernel, qkv) for name, kernel in KERNELS.items()}
                seconds = medians(time_calls(runs, asked.rounds, turn_seconds=0.1))
                ms = [f"{1e3 * median:12.2f}" for median in seconds.values()]
                print(f"{str(dtype).removeprefix('torch.'):11s}{tokens:7d}{what:>10s}" + "".join(ms), flush=True)


if __name__ == "__main__":
    main()

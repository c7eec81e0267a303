"""Measure memory and time of the class token's attention in all layers of ViT-L/16, compared with a forward.

    python benchmarks/explain_memory.py [--model vit_large_patch16_224] [--size 512] [--rounds 5]

Memory is the peak of the process above what it holds between runs (weights and input), and the total peak. Each kind
runs in a process of its own. The allocator returns freed tensors at once; otherwise memory kept from one run would
count as held before the next. Times are medians of rounds in which the kinds take turns. Needs Linux with glibc: the
peak is read and reset through /proc.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from heading import heading

import vitkit
from vitkit.bench.memory import process_memory
from vitkit.explanation import attention_maps
from vitkit.runtime.timing import medians, time_calls

LIMITS = {"memory": 1.3, "time": 1.5}
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc: blocks above this are mapped, and unmapped when freed


def kinds(model: vitkit.ViT, images: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    return {
        "plain forward": lambda: model(images),
        "class attention, all layers": lambda: attention_maps(model, images, query="class"),
        "complete matrices, all layers": lambda: model.attention(images),
    }


def peak(run: Callable[[], torch.Tensor]) -> dict[str, float]:
    """Return the MiB above what is held, and the total, of a second run: the first one is a warm-up."""
    run()
    held = process_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # reset the peak
    run()
    return {"above": (process_memory("VmHWM") - held) / 2**20, "all": process_memory("VmHWM") / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="vit_large_patch16_224")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with torch.inference_mode():
        model = vitkit.create_model(asked.model, seed=0).eval()
        runs = kinds(model, torch.randn(1, 3, asked.size, asked.size))
        if asked.peak_of:
            print(json.dumps(peak(runs[asked.peak_of])))
            return
        measure(asked, runs)


def measure(asked: argparse.Namespace, runs: dict[str, Callable[[], torch.Tensor]]) -> None:
    arguments = ["--model", asked.model, "--size", str(asked.size)]
    print(heading())
    seconds = medians(time_calls(runs, asked.rounds, clock=time.process_time))
    memory = {}
    for name in runs:
        command = [sys.executable, __file__, *arguments, "--peak-of", name]
        child = subprocess.run(command, env=os.environ | GIVE_BACK, capture_output=True, check=True)
        memory[name] = json.loads(child.stdout)
    plain_time, plain = seconds["plain forward"], memory["plain forward"]
    print(f"{'':30s}{'MiB above weights':>20s}{'ratio':>8s}{'MiB in all':>12s}{'ratio':>8s}{'CPU s':>8s}{'ratio':>8s}")
    for name in runs:
        m, s = memory[name], seconds[name]
        print(
            f"{name:30s}{m['above']:20.0f}{m['above'] / plain['above']:8.2f}{m['all']:12.0f}"
            f"{m['all'] / plain['all']:8.2f}{s:8.2f}{s / plain_time:8.2f}"
        )
    asked_for = "class attention, all layers"
    ratios = {
        "memory": memory[asked_for]["above"] / plain["above"],
        "time": seconds[asked_for] / plain_time,
    }
    kept = {kind: ratios[kind] <= limit for kind, limit in LIMITS.items()}
    print(f"\nwithin {LIMITS['memory']} × memory and {LIMITS['time']} × time: {'yes' if all(kept.values()) else 'NO'}")


if __name__ == "__main__":
    main()

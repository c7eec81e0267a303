"""Compare the estimates of `vitkit plan` with measurements on this machine: peak memory and the time of a step.

    python benchmarks/plan.py > benchmarks/results/plan.txt

Memory: every job runs alone in a new process. The result is VmHWM minus what the process held after the step of a tiny
model, once with the malloc threshold of the command that `plan` prints, and once with glibc's default.
Time: calibration and measured steps take turns, in processor time of the process, so that other work counts less. One
thread.
"""

import argparse
import os
import statistics
import time
from collections.abc import Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from heading import heading

from vitkit.model.variants import get_config
from vitkit.plan.calibrate import TrainingStep, calibrate, measure_peak
from vitkit.plan.job import Job
from vitkit.plan.memory import MIB, memory
from vitkit.plan.step_time import step_time
from vitkit.runtime.timing import time_call

MEMORY = [
    ("vit_tiny_patch16_224", dict(batch_size=8)),
    ("vit_small_patch16_224", dict(batch_size=4)),
    ("vit_base_patch16_224", dict(batch_size=4)),
    ("vit_micro_patch4_32", dict(batch_size=64)),
    ("vit_tiny_patch16_224", dict(batch_size=16, checkpoint=True)),
    ("vit_small_patch16_224", dict(batch_size=8, micro_batch=2)),
    ("vit_small_patch16_224", dict(batch_size=4, optimizer="muon")),
]
TIME = [
    ("vit_tiny_patch16_224", dict(batch_size=8)),
    ("vit_small_patch16_224", dict(batch_size=4)),
    ("vit_micro_patch4_32", dict(batch_size=32)),
    ("vit_base_patch16_224", dict(batch_size=2)),
]


def how(settings: dict) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


def compare_memory(names: Sequence[str]) -> None:
    head = "predicted  measured  ratio   default malloc  ratio   before  highest in  time to default malloc's"
    print(f"\n{'memory, MiB':24} {'':34} {head}")
    for name, settings in MEMORY:
        if names and name not in names:
            continue
        job = Job(get_config(name), **settings)
        found = memory(job, whole_run=False, base=0)
        before, highest, seconds = measure_peak(job)
        free_before, free_highest, free_seconds = measure_peak(job, malloc={})
        pinned, free = highest - before, free_highest - free_before
        print(
            f"{name:24} {how(settings):34} {found.peak / MIB:9,.0f} {pinned / MIB:9,.0f} {found.peak / pinned:6.3f} "
            f"{free / MIB:16,.0f} {found.peak / free:6.3f} {before / MIB:8,.0f}  {found.peak_phase:10} "
            f"{seconds / free_seconds:6.2f}",
            flush=True,
        )


def compare_time(names: Sequence[str], rounds: int) -> None:
    head = f"predicted  measured  ratio  (lowest, highest)  GFLOP/s  GB/s  medians of {rounds} turns"
    print(f"\n{'time of a step, s':24} {'':34} {head}")
    for name, settings in TIME:
        if names and name not in names:
            continue
        job = Job(get_config(name), **settings)
        step, turns = TrainingStep(job), []
        step()
        for _ in range(rounds):
            rates = calibrate(job, clock=time.process_time)
            measured, predicted = time_call(step, time.process_time), step_time(job, rates).seconds
            turns.append((predicted, measured, predicted / measured, rates.flops / 1e9, rates.memory / 1e9))
        p, m, ratio, flops, moved = map(statistics.median, zip(*turns, strict=True))
        lowest, highest = min(t[2] for t in turns), max(t[2] for t in turns)
        numbers = f"{p:9.2f} {m:9.2f} {ratio:6.3f}  ({lowest:.2f} to {highest:.2f}) {flops:9.1f} {moved:5.1f}"
        print(f"{name:24} {how(settings):34} {numbers}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["memory", "time"])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(heading(), flush=True)
    if options.only != "time":
        compare_memory(options.models)
    if options.only != "memory":
        compare_time(options.models, options.rounds)


if __name__ == "__main__":
    main()

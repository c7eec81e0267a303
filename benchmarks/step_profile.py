"""Profile a training step of vitkit and of timm on one core: which operations take the time.

python benchmarks/step_profile.py [--steps 3] > benchmarks/results/step_profile.txt
"""

import argparse
from collections import defaultdict

import torch
from heading import heading
from torch.profiler import ProfilerActivity, profile

from vitkit.bench.training import TrainingJob, prepare
from vitkit.model.variants import get_config

JOBS = {"vit_nano_patch4_32": 256, "vit_micro_patch4_32": 128, "vit_small_patch16_224": 16}  # batch
KINDS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    "attention": ("scaled_dot_product",),
    "GELU": ("gelu",),
    "layer norm": ("layer_norm",),
    "copies": ("aten::copy_", "aten::cat", "aten::fill_", "aten::zero_"),
    "optimizer": ("_fused_adam",),
}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=3)
    a = p.parse_args()
    torch.set_num_threads(1)  # a profile sees one thread
    print(heading("timm"))
    print(f"{'':34}{'ms a step':>10}" + "".join(f"{kind:>17}" for kind in (*KINDS, "the rest")))
    for name, batch in JOBS.items():
        for who in ("vitkit fp32", "timm fp32"):
            spent = shares(who, TrainingJob(get_config(name), batch), a.steps)
            total = sum(spent.values())
            columns = "".join(f"{spent[kind] / total:>17.1%}" for kind in (*KINDS, "the rest"))
            print(f"{name:22} {who:11}{total / a.steps / 1e3:>10.0f}{columns}", flush=True)


def shares(who: str, job: TrainingJob, steps: int) -> dict[str, float]:
    step = prepare(who, job)
    step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(steps):
            step()
    spent: dict[str, float] = defaultdict(float)
    for row in seen.key_averages():
        kind = next((kind for kind, words in KINDS.items() if any(word in row.key for word in words)), "the rest")
        spent[kind] += row.self_cpu_time_total
    return spent


if __name__ == "__main__":
    main()

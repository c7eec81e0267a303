"""Adapt published weights to grocery photographs: k-NN, linear probe, fine-tuning; and train from scratch.

    python benchmarks/grocery.py --data grocery.parquet --init deit_tiny_patch16_224_in1k.safetensors

Each method is one `vitkit` command in a new process, with an empty feature cache: times are from a cold start. The
validation split is reported and used for no choice. On one thread, while other work runs, give twice the minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heading import heading


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", required=True)
    p.add_argument("--init", required=True)
    p.add_argument("--minutes", type=float, default=10, help="budget of fine-tuning, and of training from scratch")
    p.add_argument("--threads", type=int, default=0, help="CPU threads; 0 for all")
    p.add_argument("--processes", type=int, default=1, help="processes for fine-tuning and training from scratch")
    p.add_argument("--seeds", type=int, default=1, help="number of fine-tuning runs")
    p.add_argument("--only", nargs="*", default=["knn", "probe", "finetune", "scratch"])
    p.add_argument("--set", nargs="*", default=[], help="changes to the fine-tuning recipe")
    p.add_argument("--out", default="benchmarks/results/grocery.txt")
    a = p.parse_args()
    threads = a.threads or os.cpu_count()
    lines = [heading()]
    with tempfile.TemporaryDirectory() as scratch:
        budget = ["--minutes", f"{a.minutes:g}", "--processes", str(a.processes)]
        changes = [argument for change in a.set for argument in ("--set", change)]
        tune = ["train", a.data, "--recipe", "finetune", "--init", a.init, *budget, *changes]
        ways = {"knn": ["eval", a.init, a.data, "--split", "val", "--knn"]}
        ways["probe"] = ["train", a.data, "--recipe", "probe", "--init", a.init, "--out", f"{scratch}/probe"]
        for seed in range(a.seeds):
            ways[f"finetune, seed {seed}"] = [*tune, "--seed", str(seed), "--out", f"{scratch}/finetune{seed}"]
        ways["scratch"] = ["train", a.data, "--model", "vit_tiny_patch16_224", *budget,
                           "--set", "budget.choose=last", "--out", f"{scratch}/scratch"]  # fmt: skip
        for name, way in ways.items():
            if name.split(",")[0] not in a.only:
                continue
            cache = f"{scratch}/cache-{name}"  # each method starts cold
            each = threads // (a.processes if "--processes" in way else 1)
            lines.append(measure(name, way, {"VITKIT_CACHE": cache, "OMP_NUM_THREADS": str(each)}))
            print(lines[-1], flush=True)
            Path(a.out).parent.mkdir(parents=True, exist_ok=True)
            Path(a.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(name: str, arguments: list[str], environment: dict[str, str]) -> str:
    began = time.monotonic()
    command = [sys.executable, "-m", "vitkit", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment})
    found, seconds = json.loads(done.stdout), time.monotonic() - began
    val = found.get("val", found)
    low, high = val["top1_interval"]
    more = f"  {found['epochs']:.1f} epochs" if found.get("epochs") else ""
    return (
        f"{name:18} val {val['top1']:.2%}  ({low:.1%} to {high:.1%}, {val['n']} images)  {seconds / 60:.2f} min{more}"
    )


if __name__ == "__main__":
    main()

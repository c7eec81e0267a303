"""Compare two processes of one thread with one process of two threads: images/s of the same training run.

    python benchmarks/processes.py [--rounds 3] > benchmarks/results/processes.txt

Both are complete `vitkit train` runs that take turns, the first under torchrun. Images are noise in memory, so the
result measures the steps and the exchange of gradients. Start-up, the first steps and validation are left out.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from heading import heading

from vitkit.runtime.timing import interleave, medians

JOBS = {"vit_nano_patch4_32": (32, 256, 40), "vit_tiny_patch16_224": (224, 32, 12)}  # image size, batch, steps
WARM = 3  # steps
TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "vitkit"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=list(JOBS), choices=list(JOBS))
    asked = parser.parse_args()
    print(heading())
    print(f"{'model':22} {'batch':>5}  {'1 × 2 threads':>13}  {'2 × 1 thread':>12}  ratio   round by round")
    for model in asked.models:
        with tempfile.TemporaryDirectory() as scratch:
            size, batch, steps = JOBS[model]
            data = noise(Path(scratch), size, batch * steps)
            runs = {
                "one": partial(speed, ["-m", "vitkit"], 2, model, data, batch),
                "two": partial(speed, TWO, 1, model, data, batch),
            }
            speeds = interleave(runs, asked.rounds, warmup=0)
            one, two = medians(speeds).values()
            ratios = [b / a for a, b in zip(*speeds.values(), strict=True)]
            print(
                f"{model:22} {batch:5}  {one:13.1f}  {two:12.1f}  {statistics.median(ratios):5.2f}   "
                + ", ".join(f"{ratio:.2f}" for ratio in ratios),
                flush=True,
            )


def noise(folder: Path, size: int, count: int) -> Path:
    draw = np.random.default_rng(0)
    arrays = {
        "train_images": draw.integers(0, 256, (count, size, size, 3), dtype=np.uint8),
        "train_labels": np.arange(count) % 10,
        "val_images": draw.integers(0, 256, (10, size, size, 3), dtype=np.uint8),
        "val_labels": np.arange(10),
    }
    np.savez(folder / "noise.npz", **arrays)
    return folder / "noise.npz"


def speed(launch: list[str], threads: int, model: str, data: Path, batch: int) -> float:
    """Return images per second after the first steps, from the log of the run."""
    out = Path(tempfile.mkdtemp(dir=data.parent)) / "run"
    settings = {"machine.threads": threads, "machine.precision": "fp32", "machine.compile": "off", "batch": batch}
    arguments = ["train", str(data), "--out", str(out), "--model", model, "--epochs", "1", "--json"]
    arguments += [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    subprocess.run([sys.executable, *launch, *arguments], check=True, capture_output=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    times = {row["step"]: row["time"] for row in rows if "images_per_s" in row and row["step"] >= WARM}
    first, last = min(times), max(times)
    return (last - first) * batch / (times[last] - times[first])


if __name__ == "__main__":
    main()

"""Time one image from the start of a process to the printed class: `vitkit predict` and transformers' pipeline.

    python benchmarks/cold_start.py MODEL_FOLDER IMAGE [--rounds 5] > benchmarks/results/cold_start.txt

The programs take turns, each run in a new process. `import torch` is the lower bound for all of them. The pipeline gets
the same weights, converted.
"""

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from heading import heading

from vitkit.runtime.timing import medians, time_calls

HUGGINGFACE = """
import torch
declared = torch.library.Library("torchvision", "FRAGMENT")  # where torchvision was built for another torch
for operator in ("nms", "qnms"):
    declared.define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from transformers import pipeline
print(pipeline("image-classification", {model!r}, device="cpu")({image!r}, top_k=1))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("image")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        other = str(Path(folder) / "hf")
        run([sys.executable, "-m", "vitkit", "convert", asked.model, other, "--to", "hf"])
        commands = {
            "import torch": [sys.executable, "-c", "import torch"],
            "vitkit predict": [sys.executable, "-m", "vitkit", "predict", asked.model, asked.image],
            "transformers pipeline": [sys.executable, "-c", HUGGINGFACE.format(model=other, image=asked.image)],
        }
        seconds = time_calls({name: partial(run, command) for name, command in commands.items()}, asked.rounds)
    print(heading("transformers"))
    middle_of = medians(seconds)
    bare = middle_of["import torch"]
    for name, times in seconds.items():
        middle = middle_of[name]
        print(
            f"{name:24s}{middle:6.2f} s   {middle / bare:5.2f} × import torch   ({min(times):.2f} to {max(times):.2f})"
        )
    limit, reached = 1.5 * bare + 0.5, middle_of["vitkit predict"]
    print(f"\nat most 1.5 × import torch + 0.5 s = {limit:.2f} s: {'yes' if reached <= limit else 'NO'}")


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()

"""Compare inference and training steps of vitkit with those of other libraries.

    python benchmarks/contest.py [--only infer train] [--rounds 5]

Each table comes from one `vitkit bench` command in a new process, in which all libraries take turns. The command is
printed above its table.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from heading import heading

CONTESTS = {
    "infer": [
        "vit_base_patch16_224 --batch 8 1 --against timm,hf,torchvision,vit-pytorch,openvino,onnxruntime",
    ],
    "train": [
        "vit_micro_patch4_32 --train --batch 256 --against timm,tutorial",  # width 192, 6 layers
        "vit_nano_patch4_32 --train --batch 256 --against timm,tutorial",  # width 48, 4 layers
        "vit_small_patch16_224 --train --batch 16 --against timm",
    ],
}
PACKAGES = ("timm", "transformers", "torchvision", "vit-pytorch", "openvino", "onnxruntime")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="*", choices=list(CONTESTS), default=list(CONTESTS))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "contest.txt")
    a = p.parse_args()
    with a.out.open("w", encoding="utf-8") as file:
        print(heading(*PACKAGES), file=file)
        for arguments in (arguments for part in a.only for arguments in CONTESTS[part]):
            command = ["bench", *shlex.split(arguments), "--rounds", str(a.rounds), "--no-memory"]
            shown = run([sys.executable, "-m", "vitkit", *command])
            print(f"$ {shlex.join(['vitkit', *command])}\n{shown}", file=file, flush=True)
            print(shown, flush=True)


def run(command: list[str]) -> str:
    """Return the output of a command, in lines wide enough for the table."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "COLUMNS": "110"})
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


if __name__ == "__main__":
    main()

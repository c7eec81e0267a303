"""A batch in one piece on all cores, beside the same batch in parts on one core each; all take turns.

python benchmarks/parts.py [--rounds 9] > benchmarks/results/parts.txt
"""

import argparse

import numpy as np
import torch
from heading import heading

from vitkit.bench.contest import contest
from vitkit.model import create_model
from vitkit.model.parts import InParts

SETTINGS = [("vit_nano_patch4_32", 256), ("vit_tiny_patch16_224", 8), ("vit_tiny_patch16_224", 32),
            ("vit_small_patch16_224", 32), ("vit_base_patch16_224", 8)]  # fmt: skip


@torch.inference_mode()
def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=9)
    a = p.parse_args()
    print(heading())
    print(f"{'model':24} {'batch':>5}  {'whole':>8}  {'in parts':>8}  images/s   ratio   (of the fastest turns)")
    for name, batch in SETTINGS:
        model = create_model(name).eval()
        images, parted = torch.randn(batch, 3, *model.config.image_size), InParts(model)
        runs = {"whole": lambda m=model, x=images: m(x), "in parts": lambda m=parted, x=images: m(x)}
        seconds = contest(runs, a.rounds)
        whole, parts = (float(np.median(times)) for times in seconds.values())
        fastest = min(seconds["whole"]) / min(seconds["in parts"])
        speeds = f"{batch / whole:8.1f}  {batch / parts:8.1f}"
        print(f"{name:24} {batch:5}  {speeds}             {whole / parts:5.2f}   ({fastest:.2f})", flush=True)


if __name__ == "__main__":
    main()

"""Compare logits and classes of a model in bfloat16 with those in float32, on real photographs.

    python benchmarks/bf16.py MODEL DATA [--images 500] > benchmarks/results/bf16.txt

Weights and activations are rounded as in the compiled engine on processors with bfloat16 instructions. On other
processors the same arithmetic is emulated, slowly.
"""

import argparse

import numpy as np
import torch
from heading import heading

from vitkit.data.decode_pipeline import read_split
from vitkit.data.open import open_data
from vitkit.evaluation.metrics import wilson_interval
from vitkit.weights.load import load_model


@torch.inference_mode()
def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("data")
    p.add_argument("--images", type=int, default=500)
    a = p.parse_args()
    model, low = load_model(a.model).eval(), load_model(a.model).eval().to(torch.bfloat16)
    train = open_data(a.data).splits["train"]
    some = np.linspace(0, len(train) - 1, min(a.images, len(train))).round().astype(np.int64)
    arrays, _, _ = read_split(train.subset(some), model.info.preprocess.array)
    pairs = []
    for pixels in torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).split(16):
        images = model.info.preprocess.normalize(pixels)
        pairs.append((model(images), low(images.to(torch.bfloat16)).float()))
    exact, rounded = (torch.cat(side) for side in zip(*pairs, strict=True))
    differ = exact.argmax(1) != rounded.argmax(1)
    same = len(exact) - int(differ.sum())
    print(heading())
    print(f"largest difference of a logit {(exact - rounded).abs().max():.3f}, of logits up to {exact.abs().max():.1f}")
    print(f"median difference {(exact - rounded).abs().median():.4f}")
    low_end, high_end = wilson_interval(same, len(exact))
    print(f"same class for {same} of {len(exact)} images: {same / len(exact):.2%} ({low_end:.2%} to {high_end:.2%})")
    if differ.any():
        first, second = exact[differ].topk(2).values.T
        gap = first - second
        print(f"where they differ, the first two logits of float32 are apart by {gap.min():.3f} to {gap.max():.3f}")


if __name__ == "__main__":
    main()

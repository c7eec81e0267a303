"""Compare a batch split across cores with a complete batch on all cores: inference and gradients, in turns.

python benchmarks/parts.py [--rounds 9] > benchmarks/results/parts.txt
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from heading import heading
from torch import Tensor, nn

from vitkit.model import create_model
from vitkit.runtime.threaded_inference import ThreadedInference
from vitkit.runtime.timing import Run, medians, time_calls
from vitkit.training.data_parallel import DataParallelBackward

ANSWERS = [("vit_nano_patch4_32", 256), ("vit_tiny_patch16_224", 8), ("vit_tiny_patch16_224", 32),
           ("vit_small_patch16_224", 32), ("vit_base_patch16_224", 8)]  # fmt: skip
GRADIENTS = [("vit_nano_patch4_32", 64), ("vit_nano_patch4_32", 256), ("vit_pico_stem8_32", 128),
             ("vit_micro_patch4_32", 256), ("vit_tiny_patch16_224", 32), ("vit_small_patch16_224", 16)]  # fmt: skip


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=9)
    a = p.parse_args()
    print(heading())
    table("answers", ANSWERS, answering, a.rounds)
    table("gradients", GRADIENTS, training, a.rounds)


def table(what: str, settings: list[tuple[str, int]], runs: Callable[[str, int], dict[str, Run]], rounds: int) -> None:
    print(f"\n{what:24} batch     whole  in parts  images/s   ratio   (of the fastest turns)")
    for name, batch in settings:
        seconds = time_calls(runs(name, batch), rounds, warmup=2, turn_seconds=0.4)
        whole, parts = medians(seconds).values()
        fastest = min(seconds["whole"]) / min(seconds["in parts"])
        speeds = f"{batch / whole:8.1f}  {batch / parts:8.1f}"
        print(f"{name:24} {batch:5}  {speeds}             {whole / parts:5.2f}   ({fastest:.2f})", flush=True)


def answering(name: str, batch: int) -> dict[str, Run]:
    model = create_model(name).eval()
    images, parted = torch.randn(batch, 3, *model.config.image_size), ThreadedInference(model)
    return {
        "whole": torch.inference_mode()(lambda: model(images)),
        "in parts": torch.inference_mode()(lambda: parted(images)),
    }


def training(name: str, batch: int) -> dict[str, Run]:
    model = create_model(name).train()
    images, labels = torch.randn(batch, 3, *model.config.image_size), torch.arange(batch) % 10

    def work(module: nn.Module, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
        return F.cross_entropy(module(images[rows]), labels[rows]), {}

    def step(parallel: DataParallelBackward) -> Tensor:
        model.zero_grad(set_to_none=True)
        return parallel.backward(work, slice(0, batch), 1.0)[0]

    cores = torch.get_num_threads()
    return {
        "whole": partial(step, DataParallelBackward(model, 1)),
        "in parts": partial(step, DataParallelBackward(model, cores)),
    }


if __name__ == "__main__":
    main()

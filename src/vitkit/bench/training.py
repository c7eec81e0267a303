"""Benchmarks training steps: of `vitkit train`, and a usual training step with the models of other libraries."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitkit.bench.baselines import BASELINES, build_baseline
from vitkit.bench.harness import BenchResult, check_names, run_benchmark
from vitkit.model import ViTConfig, create_model
from vitkit.model.summary import summarize
from vitkit.runtime.device import bf16_inference_pays
from vitkit.runtime.timing import Run
from vitkit.training.data_parallel import DataParallelBackward, data_parallel_cores

PASSES = 3  # forward, and gradients of inputs and of weights


@dataclass(frozen=True)
class TrainingJob:
    config: ViTConfig
    batch_size: int


def bench_training(
    config: ViTConfig, batch_size: int = 64, against: Sequence[str] = ("timm",), rounds: int = 7, memory: bool = True
) -> tuple[list[BenchResult], dict[str, str]]:
    """Return a result for each library and precision, vitkit first, and the reason for each that cannot run here."""
    job, macs = TrainingJob(config, batch_size), PASSES * summarize(config)[0].macs
    return run_benchmark(competitors(against), prepare, job, images=batch_size, macs=macs, rounds=rounds, memory=memory)


def competitors(against: Sequence[str]) -> list[str]:
    """Return the names, with bfloat16 only if it is fast on this CPU."""
    check_names(against, tuple(BASELINES))
    forms = ["fp32", "bf16"] if bf16_inference_pays() else ["fp32"]
    return [f"{name} {form}" for name in ("vitkit", *against) for form in forms]


def prepare(name: str, job: TrainingJob) -> Run:
    """Return a function that runs one training step of the named competitor."""
    library, form = name.split()
    c = job.config
    model: nn.Module = create_model(c) if library == "vitkit" else build_baseline(library, c)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    images = torch.randn(job.batch_size, c.in_channels, *c.image_size)
    labels = torch.arange(job.batch_size) % c.num_classes

    def loss_fn(module: nn.Module, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.autocast("cpu", torch.bfloat16, enabled=form == "bf16"):
            return F.cross_entropy(module(images[rows]).float(), labels[rows]), {}

    weights = sum(p.numel() for p in model.parameters())
    parallel = DataParallelBackward(model, data_parallel_cores(weights) if library == "vitkit" else 1)

    def step() -> Tensor:
        loss, _ = parallel.backward(loss_fn, slice(0, job.batch_size), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    model.train()
    return step

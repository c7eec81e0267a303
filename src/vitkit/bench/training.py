"""Images per second of a training step: ours as `vitkit train` runs it, and the step people write around a peer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitkit.bench.baselines import PEERS, Absent, build_peer
from vitkit.bench.harness import Row, measure, rows
from vitkit.bench.memory import peaks
from vitkit.bench.peak_flops import peak_macs_per_s
from vitkit.errors import UnknownNameError
from vitkit.model import ViTConfig, create_model
from vitkit.model.summary import summarize
from vitkit.runtime.device import bf16_inference_pays
from vitkit.runtime.timing import Run
from vitkit.training.data_parallel import DataParallelBackward, data_parallel_cores

PASSES = 3  # forward once, backward twice: gradients of inputs and of weights


@dataclass(frozen=True)
class Job:
    config: ViTConfig
    batch: int


def training(
    config: ViTConfig, batch: int = 64, against: Sequence[str] = ("timm",), rounds: int = 7, memory: bool = True
) -> tuple[list[Row], dict[str, str]]:
    job, missing, runs = Job(config, batch), {}, {}
    for name in contestants(against):
        try:
            runs[name] = prepare(name, job)
        except Absent as error:
            missing[name] = str(error)
    seconds = measure(runs, rounds)
    used = peaks(prepare, list(runs), job) if memory else {}
    macs = PASSES * summarize(config)[0].macs
    return rows(seconds, batch, macs, peak_macs_per_s(), used), missing


def contestants(against: Sequence[str]) -> list[str]:
    """bf16 only where the processor has it; elsewhere it is emulated and nobody would train with it."""
    for name in against:
        if name not in PEERS:
            raise UnknownNameError("library", name, PEERS)
    forms = ["fp32", "bf16"] if bf16_inference_pays() else ["fp32"]
    return [f"{name} {form}" for name in ("vitkit", *against) for form in forms]


def prepare(name: str, job: Job) -> Run:
    who, form = name.split()
    c = job.config
    model: nn.Module = create_model(c) if who == "vitkit" else build_peer(who, c)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    images = torch.randn(job.batch, c.in_channels, *c.image_size)
    labels = torch.arange(job.batch) % c.num_classes

    def work(module: nn.Module, rows: slice) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=form == "bf16"):
            return F.cross_entropy(module(images[rows]).float(), labels[rows]), torch.zeros(())

    weights = sum(p.numel() for p in model.parameters())
    parallel = DataParallelBackward(model, data_parallel_cores(c, weights) if who == "vitkit" else 1)

    def step() -> Tensor:
        loss, _ = parallel.backward(work, slice(0, job.batch), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    model.train()
    return step

"""Benchmarks inference: the engines of vitkit, and other libraries with their defaults and with their best settings."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from vitkit.bench.baselines import BASELINES, build_baseline
from vitkit.bench.harness import BenchResult, check_names, run_benchmark
from vitkit.data.preprocess import Preprocess
from vitkit.inference.autotune import choose_engine
from vitkit.inference.engines import make_engine
from vitkit.model import ViT
from vitkit.model.summary import summarize
from vitkit.runtime.device import bf16_inference_pays
from vitkit.runtime.timing import Run

RUNTIMES = {"openvino": "openvino", "onnxruntime": "onnx"}  # name on the command line → engine
LARGE_JOB = 1_000_000  # images: `auto` then chooses the fastest engine


@dataclass(frozen=True)
class InferenceJob:
    """A model and a batch size. It can be sent to another process."""

    model: ViT
    batch_size: int

    def pixels(self) -> np.ndarray:
        c = self.model.config
        shape = (self.batch_size, *c.image_size, c.in_channels)
        return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)

    def preprocess(self) -> Preprocess:
        c, half = self.model.config, (0.5,) * self.model.config.in_channels
        return Preprocess(size=c.image_size, channels=c.in_channels, mean=half, std=half)


def bench_inference(
    model: ViT, batch_size: int = 8, against: Sequence[str] = ("timm",), rounds: int = 7, memory: bool = True
) -> tuple[list[BenchResult], dict[str, str]]:
    """Return a result for each engine and library, vitkit first, and the reason for each that cannot run here."""
    job = InferenceJob(with_class_names(model), batch_size)
    macs = summarize(model.config)[0].macs
    return run_benchmark(competitors(against), prepare, job, images=batch_size, macs=macs, rounds=rounds, memory=memory)


def competitors(against: Sequence[str]) -> list[str]:
    check_names(against, (*BASELINES, *RUNTIMES))
    engines = ["vitkit auto", "vitkit eager", "vitkit compiled"]
    libraries = [f"{name} {form}" for name in against if name in BASELINES for form in ("default", "best")]
    return [*engines, *libraries, *(name for name in against if name in RUNTIMES)]


def prepare(name: str, job: InferenceJob) -> Run:
    """Return a function that runs one batch in the named competitor."""
    library, _, form = name.partition(" ")
    if library == "vitkit" or library in RUNTIMES:
        return _engine(RUNTIMES.get(library) or form, job)
    c = job.model.config
    model = build_baseline(library, c).eval()
    images = torch.randn(job.batch_size, c.in_channels, *c.image_size)
    return _forward(model, images) if form == "default" else _compiled(model, images)


def _engine(name: str, job: InferenceJob) -> Run:
    pixels, preprocess = job.pixels(), job.preprocess()
    if name == "auto":
        engine = choose_engine(job.model, preprocess, LARGE_JOB, job.batch_size).engine
    else:
        engine = make_engine(name, job.model, preprocess)
    return lambda: engine(pixels)


def _forward(model: nn.Module, images: Tensor) -> Run:
    return torch.inference_mode()(lambda: model(images))


def _compiled(model: nn.Module, images: Tensor) -> Run:
    """Return the forward pass, compiled with frozen weights, in bfloat16 if that is faster on this device."""
    if bf16_inference_pays(images.device):
        model, images = model.to(torch.bfloat16), images.to(torch.bfloat16)
    compiled: Callable[[Tensor], Tensor] = torch.compile(model, options={"freezing": True})
    return torch.no_grad()(lambda: compiled(images))


def with_class_names(model: ViT) -> ViT:
    """Return the model with numbers as class names if it has none: engines need some."""
    if not model.info.class_names:
        model = copy.copy(model)
        model.info = replace(model.info, class_names=tuple(map(str, range(model.config.num_classes))))
    return model.eval()

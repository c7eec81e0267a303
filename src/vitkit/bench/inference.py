"""Images per second of a model that answers: our engines, other libraries as they come, and those at their best."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from vitkit.bench.baselines import PEERS, Absent, build_peer
from vitkit.bench.harness import Row, measure, rows
from vitkit.bench.memory import peaks
from vitkit.bench.peak_flops import peak_macs_per_s
from vitkit.data.preprocess import Preprocess
from vitkit.errors import MissingExtraError, UnknownNameError, WorkError, first_line
from vitkit.inference.autotune import choose_engine
from vitkit.inference.engines import make_engine
from vitkit.model import ViT
from vitkit.model.summary import summarize
from vitkit.runtime.device import bf16_inference_pays
from vitkit.runtime.timing import Run

RUNTIMES = {"openvino": "openvino", "onnxruntime": "onnx"}  # our graph in their runtime
AGAINST = (*PEERS, *RUNTIMES)
MUCH_WORK = 1_000_000  # images: what `auto` chooses for a long job


@dataclass(frozen=True)
class Job:
    """One batch size of one model, and who runs it. Small enough to be sent to another process."""

    model: ViT
    batch: int

    def pixels(self) -> np.ndarray:
        c = self.model.config
        return np.random.default_rng(0).integers(0, 256, (self.batch, *c.image_size, c.in_channels), dtype=np.uint8)

    def preprocess(self) -> Preprocess:
        c, half = self.model.config, (0.5,) * self.model.config.in_channels
        return Preprocess(size=c.image_size, channels=c.in_channels, mean=half, std=half)


def inference(
    model: ViT, batch: int = 8, against: Sequence[str] = ("timm",), rounds: int = 7, memory: bool = True
) -> tuple[list[Row], dict[str, str]]:
    """A row per contestant, ours first; and why those that were asked for and are missing are missing."""
    job, missing, runs = Job(named(model), batch), {}, {}
    for name in contestants(against):
        try:
            runs[name] = prepare(name, job)
            runs[name]()  # what is compiled on a first call may fail there
        except (Absent, MissingExtraError, WorkError, torch._inductor.exc.InductorError) as error:
            runs.pop(name, None)
            missing[name] = first_line(error)
    seconds = measure(runs, rounds)
    used = peaks(prepare, list(runs), job) if memory else {}
    macs = summarize(model.config)[0].macs
    return rows(seconds, batch, macs, peak_macs_per_s(), used), missing


def contestants(against: Sequence[str]) -> list[str]:
    for name in against:
        if name not in AGAINST:
            raise UnknownNameError("library", name, AGAINST)
    ours = ["vitkit auto", "vitkit eager", "vitkit compiled"]
    theirs = [f"{name} {form}" for name in against if name in PEERS for form in ("default", "best")]
    return [*ours, *theirs, *(name for name in against if name in RUNTIMES)]


def prepare(name: str, job: Job) -> Run:
    who, _, form = name.partition(" ")
    if who == "vitkit" or who in RUNTIMES:
        return _engine(RUNTIMES.get(who) or form, job)
    peer = build_peer(who, job.model.config).eval()
    c = job.model.config
    images = torch.randn(job.batch, c.in_channels, *c.image_size)
    return _forward(peer, images) if form == "default" else _at_its_best(peer, images)


def _engine(name: str, job: Job) -> Run:
    pixels, preprocess = job.pixels(), job.preprocess()
    if name == "auto":
        engine = choose_engine(job.model, preprocess, MUCH_WORK, job.batch).engine
    else:
        engine = make_engine(name, job.model, preprocess)
    return lambda: engine(pixels)


def _forward(model: nn.Module, images: Tensor) -> Run:
    @torch.inference_mode()
    def run() -> Tensor:
        return model(images)

    return run


def _at_its_best(model: nn.Module, images: Tensor) -> Run:
    """Compiled with frozen weights, in bf16 where this processor is faster in it."""
    if bf16_inference_pays(images.device):
        model, images = model.to(torch.bfloat16), images.to(torch.bfloat16)
    compiled: Callable[[Tensor], Tensor] = torch.compile(model, options={"freezing": True})

    @torch.no_grad()
    def run() -> Tensor:
        return compiled(images)

    return run


def named(model: ViT) -> ViT:
    """Engines carry class names; a model by name has none yet."""
    if not model.info.class_names:
        model = copy.copy(model)
        model.info = replace(model.info, class_names=tuple(map(str, range(model.config.num_classes))))
    return model.eval()

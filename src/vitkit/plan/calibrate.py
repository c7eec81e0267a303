"""The same numbers, measured: the peak of a step in a process of its own, and what the machine reaches."""

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor

import torch
from torch import Tensor, nn

from vitkit.bench.memory import of_this_process
from vitkit.model import create_model
from vitkit.plan.activations import tokens
from vitkit.plan.job import Job
from vitkit.plan.memory import MALLOC
from vitkit.plan.step_time import Rates, flops, traffic
from vitkit.runtime.data_parallel import IMAGES_PER_CORE, thread_pool
from vitkit.runtime.timing import medians, time_calls
from vitkit.training import recipe
from vitkit.training.data_parallel import DataParallelBackward
from vitkit.training.ema import EMA
from vitkit.training.loss import soft_targets, supervised_loss
from vitkit.training.optim import clip_gradients, make_optimizers

CALIBRATION_TOKENS = 1600  # 8 images of ViT's 197: enough to leave the caches


class Step:
    """A training step as `vitkit train` takes it, on images of noise."""

    def __init__(self, job: Job) -> None:
        c = job.config
        self.job, self.model = job, create_model(c, seed=0).train()
        self.model.set_grad_checkpointing(job.checkpoint)
        self.optimizers = make_optimizers(self.model, recipe.Optimizer(name=job.optimizer))
        self.ema = EMA(self.model) if job.ema else None
        draw = torch.Generator().manual_seed(0)
        size = (job.share, c.in_channels, *c.image_size)
        self.pixels = torch.randint(0, 256, size, dtype=torch.uint8, generator=draw)
        self.labels = torch.arange(job.share) % c.num_classes
        self.parallel = DataParallelBackward(self.model, job.cores)

    def __call__(self) -> None:
        job = self.job
        images = self.pixels.float().div_(255)
        images = torch.lerp(images, images.flip(0), 0.5)  # mixed, as in training
        targets = soft_targets(self.labels, job.config.num_classes, 0.1)

        def work(module: nn.Module, rows: slice) -> tuple[Tensor, Tensor]:
            with torch.autocast("cpu", torch.bfloat16, enabled=job.precision == "bf16"):
                return supervised_loss(module, images[rows], targets[rows])

        for start in range(0, job.share, job.at_a_time):
            rows = slice(start, min(start + job.at_a_time, job.share))
            self.parallel.backward(work, rows, (rows.stop - rows.start) / job.share)
        clip_gradients(self.optimizers, 1.0)
        for each in self.optimizers:
            each.step()
        if self.ema:
            self.ema.update(self.model, 0.99)
        for each in self.optimizers:
            each.zero_grad(set_to_none=True)


def peak(job: Job, steps: int = 3, malloc: Mapping[str, str] = MALLOC) -> tuple[int, int, float]:
    """(bytes before, bytes at the highest, processor seconds of the last step), in a new process. Linux only."""
    kept = {name: os.environ.get(name) for name in malloc}
    os.environ.update(malloc)  # the C library reads it when a process starts
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
            return alone.submit(_peak, job, steps).result()
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _peak(job: Job, steps: int) -> tuple[int, int, float]:
    torch.set_num_threads(job.cores)
    small = job.config.replace(
        depth=1, width=64, heads=1, head_width=64, mlp_width=64, image_size=job.config.patch_size
    )
    Step(job.replace(config=small, batch=job.ranks, micro_batch=0))()  # what a first step loads: code, not data
    before = of_this_process("VmRSS")
    step = Step(job)
    for _ in range(steps):
        started = time.process_time()
        step()
    return before, of_this_process("VmHWM"), time.process_time() - started


def calibrate(job: Job, rounds: int = 3, clock: Callable[[], float] = time.perf_counter) -> Rates:
    """What this machine reaches in the products of this model, and in all the rest of a step.

    One matrix product of the model's MLP and one step of its first two blocks, in turn, medians: whatever else keeps
    the machine busy slows both.
    """
    c = job.config
    some = max(round(CALIBRATION_TOKENS / tokens(c)), job.parts * IMAGES_PER_CORE)
    images = max(1, min(job.at_a_time, some))
    short = job.replace(config=c.replace(depth=min(c.depth, 2)), batch=images, ranks=1, micro_batch=0, shard="none")
    rows = images * tokens(c)
    kind = torch.bfloat16 if job.precision == "bf16" else torch.float32
    a, b = torch.randn(rows, c.width, dtype=kind), torch.randn(c.width, c.mlp_width, dtype=kind)
    runs: dict[str, Callable[[], object]] = {"product": lambda: _product(a, b, short.parts), "step": Step(short)}
    product, step = medians(time_calls(runs, rounds, clock=clock)).values()
    rate = 2 * rows * c.width * c.mlp_width / product
    rest = max(step - sum(flops(short)) / rate, 0.02 * step)  # a product that was slowed down would leave nothing
    return Rates(rate, sum(traffic(short)) / rest)


def _product(a: Tensor, b: Tensor, parts: int) -> object:
    """As in a step: by all cores together, or by each for itself."""
    return a @ b if parts == 1 else list(thread_pool(parts).map(lambda rows: rows @ b, a.tensor_split(parts)))

"""Measurements for comparison and calibration: peak memory of a step, and the rates that this machine reaches."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from vitkit.bench.memory import process_memory, run_in_new_process
from vitkit.data.rng import SampleKeys
from vitkit.data.training_batch import TrainingBatch, soft_targets
from vitkit.model import create_model
from vitkit.plan.activations import tokens
from vitkit.plan.job import Job
from vitkit.plan.memory import MALLOC
from vitkit.plan.step_time import Rates, flops, traffic
from vitkit.runtime.packages import environment
from vitkit.runtime.threaded_inference import IMAGES_PER_CORE, thread_pool
from vitkit.runtime.timing import medians, time_calls
from vitkit.training import recipe
from vitkit.training.data_parallel import DataParallelBackward
from vitkit.training.ema import EMA
from vitkit.training.objective import ObjectiveModule, Supervised
from vitkit.training.optim import clip_gradients, make_optimizers

CALIBRATION_TOKENS = 1600  # 8 images of 197 tokens: too large for the processor caches


class TrainingStep:
    """A step of `vitkit train` on noise images."""

    def __init__(self, job: Job) -> None:
        c = job.config
        self.job, self.model = job, create_model(c, seed=0).train()
        self.model.set_grad_checkpointing(job.checkpoint)
        self.optimizers = make_optimizers(self.model, recipe.Optimizer(name=job.optimizer))
        self.ema = EMA(self.model) if job.ema else None
        generator = torch.Generator().manual_seed(0)
        size = (job.rank_batch, c.in_channels, *c.image_size)
        self.pixels = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
        self.labels = torch.arange(job.rank_batch) % c.num_classes
        self.parallel = DataParallelBackward(ObjectiveModule(self.model, Supervised()), job.cores)

    def __call__(self) -> None:
        job = self.job
        images = self.pixels.float().div_(255)
        images = torch.lerp(images, images.flip(0), 0.5)  # stands for mixup
        targets, zeros = soft_targets(self.labels, job.config.num_classes, 0.1), np.zeros(job.rank_batch, np.int64)
        batch = TrainingBatch(images, self.labels, targets, SampleKeys(0, zeros, zeros, zeros))

        def work(module: nn.Module, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
            with torch.autocast("cpu", torch.bfloat16, enabled=job.precision == "bf16"):
                return module(batch[rows])

        for start in range(0, job.rank_batch, job.forward_batch):
            rows = slice(start, min(start + job.forward_batch, job.rank_batch))
            self.parallel.backward(work, rows, (rows.stop - rows.start) / job.rank_batch)
        clip_gradients(self.optimizers, 1.0)
        for each in self.optimizers:
            each.step()
        if self.ema:
            self.ema.update(self.model, 0.99)
        for each in self.optimizers:
            each.zero_grad(set_to_none=True)


def measure_peak(job: Job, steps: int = 3, malloc: Mapping[str, str] = MALLOC) -> tuple[int, int, float]:
    """Return (bytes before, peak bytes, processor seconds of the last step), measured in a new process. Linux only."""
    with environment(malloc):  # glibc reads it at process start
        return run_in_new_process(_measure_peak, job, steps)


def _measure_peak(job: Job, steps: int) -> tuple[int, int, float]:
    torch.set_num_threads(job.cores)
    small = job.config.replace(
        depth=1, width=64, heads=1, head_width=64, mlp_width=64, image_size=job.config.patch_size
    )
    TrainingStep(job.replace(config=small, batch_size=job.ranks, micro_batch=0))()  # loads the code of a step
    before = process_memory("VmRSS")
    step = TrainingStep(job)
    for _ in range(steps):
        started = time.process_time()
        step()
    return before, process_memory("VmHWM"), time.process_time() - started


def calibrate(job: Job, rounds: int = 3, clock: Callable[[], float] = time.perf_counter) -> Rates:
    """Measure the rate of this model's matrix products, and of the memory traffic in the rest of a step.

    One matrix product of the MLP and one step of the first two blocks are timed in turn, so that other load on the
    machine slows both. Medians are used.
    """
    c = job.config
    enough = max(round(CALIBRATION_TOKENS / tokens(c)), job.replicas * IMAGES_PER_CORE)
    images = max(1, min(job.forward_batch, enough))
    shallow = c.replace(depth=min(c.depth, 2))
    short = job.replace(config=shallow, batch_size=images, ranks=1, micro_batch=0, shard="none")
    rows = images * tokens(c)
    kind = torch.bfloat16 if job.precision == "bf16" else torch.float32
    a, b = torch.randn(rows, c.width, dtype=kind), torch.randn(c.width, c.mlp_width, dtype=kind)
    runs: dict[str, Callable[[], object]] = {
        "product": lambda: _product(a, b, short.replicas),
        "step": TrainingStep(short),
    }
    product, step = medians(time_calls(runs, rounds, clock=clock)).values()
    rate = 2 * rows * c.width * c.mlp_width / product
    rest = max(step - sum(flops(short)) / rate, 0.02 * step)  # if the product was slowed down, nothing would be left
    return Rates(rate, sum(traffic(short)) / rest)


def _product(a: Tensor, b: Tensor, replicas: int) -> object:
    """Multiply as a step does: on all cores together, or on each core separately."""
    return a @ b if replicas == 1 else list(thread_pool(replicas).map(lambda rows: rows @ b, a.tensor_split(replicas)))

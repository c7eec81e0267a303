"""Splits batches across the cores of a CPU, with one thread per core.

If all cores share each matrix product instead, they wait for each other some hundred times per forward pass. With two
cores, splitting the batch gives 1.03 × (ViT-B/16) to 1.7 × (0.12 M parameters, 32 pixels) the images/s
(benchmarks/results/parts.txt).
"""

import functools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor, nn

IMAGES_PER_CORE = 4  # at least; with fewer, matrix products are too small to be fast

# torch.set_num_threads sets the count of the calling thread and the default of threads that start later. All changes
# are made under this lock, and the default is restored by whichever change ends last.
_lock = threading.Lock()
_defaults: list[int] = []  # one entry per open `torch_threads`: the count outside of all of them


class ThreadedInference(nn.Module):
    """Runs a model with the batch split across cores. Results are equal up to rounding.

    The model is called directly on other devices, for small batches, on one core, with gradients, and under autocast:
    gradient mode and autocast belong to the calling thread.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        cores = available_cores() if images.device.type == "cpu" else 1
        small = cores == 1 or len(images) < cores * IMAGES_PER_CORE
        if small or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return self.model(images)

        @torch.inference_mode()
        def forward(part: Tensor) -> Tensor:
            return self.model(part)

        return torch.cat(list(thread_pool(cores).map(forward, images.tensor_split(cores))))


def available_cores() -> int:
    """Return the number of cores that torch uses in this thread."""
    with _lock:
        return torch.get_num_threads()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set torch's number of threads within the context. Contexts of several threads may overlap."""
    with _lock:
        before = torch.get_num_threads()
        _defaults.append(_defaults[0] if _defaults else before)
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            default = _defaults.pop()
            torch.set_num_threads(before if _defaults else default)


def thread_pool(cores: int) -> ThreadPoolExecutor:
    """Return a pool of `cores` threads that each run torch on one core. It is created once and kept."""
    with _lock:
        return _create_pool(cores)


@functools.cache
def _create_pool(cores: int) -> ThreadPoolExecutor:
    before = torch.get_num_threads()
    pool, all_started = ThreadPoolExecutor(cores, thread_name_prefix="vitkit-core"), threading.Barrier(cores)

    def start(_: int) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # torch applies the count to a thread at its first use
        all_started.wait()

    list(pool.map(start, range(cores)))
    torch.set_num_threads(before)  # restores the default of later threads
    return pool

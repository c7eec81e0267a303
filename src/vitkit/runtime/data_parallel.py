"""A batch in parts, each on cores of its own.

On a CPU this beats all cores working on each product together: there they wait for each other some hundred times per
forward. Two cores give 1.03 × (ViT-B/16) to 1.7 × (0.12 M at 32 pixels) the images/s (benchmarks/results/parts.txt).
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from torch import Tensor, nn

IMAGES_PER_CORE = 4  # at least: with fewer, products are too thin to be fast


class InParts(nn.Module):
    """The model, to rounding. Off the CPU, for few images, on one core, and with gradients or under autocast, which are
    the asking thread's own, it is the model itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        cores = torch.get_num_threads() if images.device.type == "cpu" else 1
        if (
            cores == 1
            or len(images) < cores * IMAGES_PER_CORE
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
        ):
            return self.model(images)

        @torch.inference_mode()
        def one(part: Tensor) -> Tensor:
            return self.model(part)

        return torch.cat(list(pool(cores).map(one, images.tensor_split(cores))))


@functools.cache
def pool(cores: int) -> ThreadPoolExecutor:
    """A thread for each core, that uses no other; kept for the next batch."""
    before = torch.get_num_threads()
    pool, all_there = ThreadPoolExecutor(cores, thread_name_prefix="vitkit-part"), Barrier(cores)

    def start(_: int) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # a thread takes the number over when it is first asked for, not when it is set
        all_there.wait()

    list(pool.map(start, range(cores)))
    torch.set_num_threads(before)  # what a thread sets for itself, later threads would inherit
    return pool

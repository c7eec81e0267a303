"""Data-parallel gradient steps on the cores of one CPU.

Each core runs forward and backward on its own images, with a copy of the model that shares the weights. The gradients
are then added in the order of the images, so a step is deterministic and equals the plain step up to rounding.
Two cores give 1.06 × (ViT-S/16) to 1.4 × (32-pixel models) the images/s (benchmarks/results/parts.txt), because
they need not synchronise at every matrix product.
"""

import copy
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from itertools import pairwise

import torch
from torch import Tensor, nn

from vitkit.runtime.threaded_inference import IMAGES_PER_CORE, available_cores, thread_pool, torch_threads

MAX_GRADIENT_VALUES = 2**26  # over all cores (256 MiB): larger models gain little

# module, rows of the batch → mean loss, and further means by name
LossFn = Callable[[nn.Module, slice], tuple[Tensor, Mapping[str, Tensor]]]
Means = tuple[Tensor, dict[str, Tensor]]


def data_parallel_cores(parameters: int, device: str = "cpu", processes: int = 1) -> int:
    """Return the number of cores to divide a step among: all of them in a single process on a CPU, else 1.

    It is also 1 for large models.
    """
    cores = 1 if device != "cpu" or processes > 1 else available_cores()
    return cores if cores * parameters <= MAX_GRADIENT_VALUES else 1


class DataParallelBackward:
    """Computes the gradients of a module, with the rows of a batch divided among `cores` threads."""

    def __init__(self, module: nn.Module, cores: int) -> None:
        self.module, self.copies = module, [_copy_sharing_weights(module) for _ in range(cores - 1)]

    def backward(self, loss_fn: LossFn, rows: slice, weight: float) -> Means:
        """Add the gradients of `weight` × the mean loss of `rows`. Return the mean loss and the further means."""
        modules, count = [self.module, *self.copies], rows.stop - rows.start
        if len(modules) == 1:
            return _backward(loss_fn, self.module, rows, weight)
        if count < len(modules) * IMAGES_PER_CORE:
            with torch_threads(len(modules)):  # the training loop itself runs with one
                return _backward(loss_fn, self.module, rows, weight)
        parts = _split_rows(rows, len(modules))
        shares = [(part.stop - part.start) / count for part in parts]
        jobs = [
            thread_pool(len(modules)).submit(_backward, loss_fn, module, part, weight * share)
            for module, part, share in zip(modules, parts, shares, strict=True)
        ]
        found: list[Means] = []
        try:
            wait(jobs)  # all of them, even if one fails: no thread may write gradients after this has returned
            while jobs:  # one by one: an exception that refers to its job would keep the job's tensors alive
                found.append(jobs.pop(0).result())
            self._add_gradients_of_copies()
        finally:
            jobs.clear()
            for each in self.copies:
                each.zero_grad(set_to_none=True)
        weights = torch.tensor(shares)
        means = {name: torch.stack([means[name] for _, means in found]) @ weights for name in found[0][1]}
        return torch.stack([loss for loss, _ in found]) @ weights, means

    def _add_gradients_of_copies(self) -> None:
        for each in self.copies:
            pairs = zip(self.module.parameters(), each.parameters(), strict=True)
            found = [(p.grad, q.grad) for p, q in pairs if p.grad is not None and q.grad is not None]
            torch._foreach_add_([ours for ours, _ in found], [theirs for _, theirs in found])


def _backward(loss_fn: LossFn, module: nn.Module, rows: slice, weight: float) -> Means:
    loss, means = loss_fn(module, rows)
    torch.autograd.backward(loss * weight)
    return loss.detach(), dict(means)


def _split_rows(rows: slice, parts: int) -> list[slice]:
    """Split `rows` into `parts` consecutive slices of nearly equal length."""
    count = rows.stop - rows.start
    ends = [rows.start + count * part // parts for part in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def _copy_sharing_weights(module: nn.Module) -> nn.Module:
    """Return a copy of the module that has its own gradients but shares the memory of the weights."""
    shared = {id(p): nn.Parameter(p.detach(), requires_grad=p.requires_grad) for p in module.parameters()}
    return copy.deepcopy(module, shared)

"""The gradients of a batch, spread over the cores of a CPU.

Where all cores work on each product together they wait for each other at every one, some hundred times per step.
Here each core takes images of its own through the forward and the backward, on a copy of the model that shares its
weights, and the gradients are added up in the order of the images: the same step, to rounding, always with the same
rounding. Two cores give 1.06 × (ViT-S/16) to 1.4 × (32-pixel models) the images/s (benchmarks/results/parts.txt).
"""

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from vitkit.model import ViTConfig
from vitkit.runtime.data_parallel import IMAGES_PER_CORE, pool

MOST_GRADIENTS = 2**26  # numbers, of all cores together (256 MiB): larger models gain little by it

Work = Callable[[nn.Module, slice], tuple[Tensor, Tensor]]  # a module and rows of the batch → their mean loss, hits


def cores_for(config: ViTConfig, weights: int, device: str = "cpu", processes: int = 1) -> int:
    """How many a step may be spread over: all of a process that is alone on a CPU. One for a large model, and one where
    dropout would draw from the one generator in whatever order threads come to it."""
    draws = config.dropout or config.attention_dropout or config.drop_path
    cores = 1 if draws or device != "cpu" or processes > 1 else torch.get_num_threads()
    return cores if cores * weights <= MOST_GRADIENTS else 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Spread:
    """Adds gradients to the parameters of a module."""

    def __init__(self, module: nn.Module, cores: int) -> None:
        self.module, self.copies = module, [_copy_sharing_weights(module) for _ in range(cores - 1)]

    def backward(self, work: Work, rows: slice, weight: float) -> tuple[Tensor, Tensor]:
        """Of `weight` × the mean loss of these rows. Returns that loss and how many of them were hit."""
        modules, count = [self.module, *self.copies], rows.stop - rows.start
        if len(modules) == 1:
            return _backward(work, self.module, rows, weight)
        if count < len(modules) * IMAGES_PER_CORE:
            with threads(len(modules)):  # the loop itself has one
                return _backward(work, self.module, rows, weight)
        parts = _cut(rows, len(modules))
        shares = [(part.stop - part.start) / count for part in parts]
        jobs = [
            pool(len(modules)).submit(_backward, work, module, part, weight * share)
            for module, part, share in zip(modules, parts, shares, strict=True)
        ]
        losses, hits = [], []
        try:
            wait(jobs)  # all of them, also where one fails: nobody may write gradients when this has returned
            while jobs:  # one by one: an error that still knew its job would keep all that the job held
                loss, hit = jobs.pop(0).result()
                losses.append(loss)
                hits.append(hit)
            self._collect()
        finally:
            jobs.clear()
            for each in self.copies:
                each.zero_grad(set_to_none=True)
        return torch.stack(losses) @ torch.tensor(shares), torch.stack(hits).sum()

    def _collect(self) -> None:
        for each in self.copies:
            pairs = zip(self.module.parameters(), each.parameters(), strict=True)
            found = [(p.grad, q.grad) for p, q in pairs if p.grad is not None and q.grad is not None]
            torch._foreach_add_([ours for ours, _ in found], [theirs for _, theirs in found])


def _backward(work: Work, module: nn.Module, rows: slice, weight: float) -> tuple[Tensor, Tensor]:
    loss, hits = work(module, rows)
    torch.autograd.backward(loss * weight)
    return loss.detach(), hits


def _cut(rows: slice, parts: int) -> list[slice]:
    """Consecutive, as even as can be."""
    count = rows.stop - rows.start
    ends = [rows.start + count * part // parts for part in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def _copy_sharing_weights(module: nn.Module) -> nn.Module:
    """Other parameters, with other gradients, in the same memory: an update of the one is an update of the other."""
    shared = {id(p): nn.Parameter(p.detach(), requires_grad=p.requires_grad) for p in module.parameters()}
    return copy.deepcopy(module, shared)

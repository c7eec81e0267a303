"""Parameters, counted by place, and the bytes that an optimizer keeps for them."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import torch

from vitkit.model import ViTConfig, create_model
from vitkit.plan.activations import FLOAT
from vitkit.plan.job import Job
from vitkit.training.optim import layer_index, uses_muon


@dataclass(frozen=True)
class Matrix:
    rows: int
    columns: int
    times: int  # how often the model has it

    @property
    def size(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class Parameters:
    embed: int
    block: int
    head: int
    depth: int
    tensors: int
    matrices: tuple[Matrix, ...]  # those that Muon updates
    in_products: int  # of which autocast keeps a copy

    @property
    def total(self) -> int:
        return self.embed + self.depth * self.block + self.head

    @property
    def largest_matrix(self) -> Matrix:
        return max(self.matrices, key=lambda matrix: matrix.size)


@lru_cache(maxsize=64)
def parameters(config: ViTConfig) -> Parameters:
    """All blocks are alike: one is counted, on the meta device, which holds no numbers."""
    named = list(create_model(config.replace(depth=1), device="meta").named_parameters())
    times = {0: 1, 1: config.depth, 2: 1}  # embedding, block, head
    count = {layer: sum(p.numel() for name, p in named if layer_index(name, 1) == layer) for layer in times}
    shapes: Counter[torch.Size] = Counter()
    for name, p in named:
        if uses_muon(name, p, config):
            shapes[p.shape] += times[layer_index(name, 1)]
    return Parameters(
        count[0], count[1], count[2], config.depth,
        tensors=sum(times[layer_index(name, 1)] for name, _ in named),
        matrices=tuple(Matrix(shape[0], shape[1:].numel(), count) for shape, count in shapes.items()),
        in_products=sum(
            times[layer_index(name, 1)] * p.numel() for name, p in named if name.endswith("weight") and p.ndim >= 2
        ),
    )  # fmt: skip


def optimizer_bytes(job: Job) -> int:
    """AdamW: two moments of each number and a count of each tensor. Muon: one momentum for its matrices."""
    p = parameters(job.config)
    muon = p.matrices if job.optimizer == "muon" else ()
    orthogonal = sum(matrix.times * matrix.size for matrix in muon)
    counts = p.tensors - sum(matrix.times for matrix in muon)
    return FLOAT * (orthogonal + 2 * (p.total - orthogonal) + counts)

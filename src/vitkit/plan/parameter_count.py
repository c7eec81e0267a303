"""Parameter counts of embedding, blocks and head, and the bytes of the optimizer state."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import torch

from vitkit.model import ViTConfig, create_model
from vitkit.plan.activations import FLOAT
from vitkit.plan.job import Job
from vitkit.training.optim import uses_muon


@dataclass(frozen=True)
class Matrix:
    rows: int
    columns: int
    count: int  # matrices of this shape in the model

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
    in_matmuls: int  # autocast keeps a copy of these

    @property
    def total(self) -> int:
        return self.embed + self.depth * self.block + self.head

    @property
    def largest_matrix(self) -> Matrix:
        return max(self.matrices, key=lambda matrix: matrix.size)


@lru_cache(maxsize=64)
def parameters(config: ViTConfig) -> Parameters:
    """Count the parameters of a model with one block on the meta device. All blocks are alike."""
    model = create_model(config.replace(depth=1), device="meta")
    named, layer_of = list(model.named_parameters()), model.layer_index
    copies = {0: 1, 1: config.depth, 2: 1}  # embedding, block, head
    count = {layer: sum(p.numel() for name, p in named if layer_of(name) == layer) for layer in copies}
    times = {name: copies[layer_of(name)] for name, _ in named}
    shapes: Counter[torch.Size] = Counter()
    for name, p in named:
        if uses_muon(name, p, config):
            shapes[p.shape] += times[name]
    return Parameters(
        count[0], count[1], count[2], config.depth,
        tensors=sum(times.values()),
        matrices=tuple(Matrix(shape[0], shape[1:].numel(), count) for shape, count in shapes.items()),
        in_matmuls=sum(times[name] * p.numel() for name, p in named if name.endswith("weight") and p.ndim >= 2),
    )  # fmt: skip


def optimizer_bytes(job: Job) -> int:
    """Return the bytes of the state. AdamW: two moments per number and a count per tensor. Muon: one momentum."""
    p = parameters(job.config)
    muon = p.matrices if job.optimizer == "muon" else ()
    in_muon = sum(matrix.count * matrix.size for matrix in muon)
    counts = p.tensors - sum(matrix.count for matrix in muon)
    return FLOAT * (in_muon + 2 * (p.total - in_muon) + counts)

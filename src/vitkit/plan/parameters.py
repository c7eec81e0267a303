"""Parameters, counted by place, and the bytes that an optimizer keeps for them."""

from dataclasses import dataclass
from functools import lru_cache

from vitkit.model import ViTConfig, create_model
from vitkit.plan.activations import FLOAT
from vitkit.plan.job import Job
from vitkit.train.optimizer import layer_of


@dataclass(frozen=True)
class Parameters:
    embed: int
    block: int
    head: int
    depth: int
    tensors: int
    matrices: tuple[tuple[int, int], ...]  # of one block: those that Muon updates
    in_products: int  # of which autocast keeps a copy

    @property
    def total(self) -> int:
        return self.embed + self.depth * self.block + self.head

    @property
    def largest_matrix(self) -> tuple[int, int]:
        return max(self.matrices, key=lambda shape: shape[0] * shape[1])


@lru_cache(maxsize=64)
def parameters(config: ViTConfig) -> Parameters:
    """All blocks are alike: one is counted, on the meta device, which holds no numbers."""
    named = list(create_model(config.replace(depth=1), device="meta").named_parameters())
    times = {0: 1, 1: config.depth, 2: 1}  # embedding, block, head
    count = {layer: sum(p.numel() for name, p in named if layer_of(name, 1) == layer) for layer in times}
    return Parameters(
        count[0], count[1], count[2], config.depth,
        tensors=sum(times[layer_of(name, 1)] for name, _ in named),
        matrices=tuple((p.shape[0], p.shape[1]) for name, p in named if layer_of(name, 1) == 1 and p.ndim == 2),
        in_products=sum(
            times[layer_of(name, 1)] * p.numel() for name, p in named if name.endswith("weight") and p.ndim >= 2
        ),
    )  # fmt: skip


def optimizer_bytes(job: Job) -> int:
    """AdamW: two moments of each number and a count of each tensor. Muon: one momentum for the blocks' matrices."""
    p = parameters(job.config)
    muon = p.matrices if job.optimizer == "muon" else ()
    orthogonal = p.depth * sum(rows * columns for rows, columns in muon)
    counts = p.tensors - p.depth * len(muon)
    return FLOAT * (orthogonal + 2 * (p.total - orthogonal) + counts)

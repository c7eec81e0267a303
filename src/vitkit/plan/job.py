"""`Job`: the settings that decide how much memory and time a training process takes."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from vitkit.data import sampler
from vitkit.errors import ConfigError
from vitkit.model import ViTConfig
from vitkit.runtime.threaded_inference import IMAGES_PER_CORE

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Job:
    config: ViTConfig
    batch_size: int  # images per step, over all ranks
    ranks: int = 1
    micro_batch: int = 0  # images per forward pass within a rank; 0: all images of the rank
    shard: Literal["none", "full"] = "none"
    checkpoint: bool = False  # activation checkpointing: keep the input of a block and recompute the rest
    optimizer: Literal["adamw", "muon"] = "adamw"
    ema: bool = True
    precision: Literal["fp32", "bf16"] = "fp32"
    device: Device = "cpu"
    cores: int = 1  # that share a step, each with its own gradients (training/data_parallel.py)

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.ranks < 1 or self.micro_batch < 0 or self.cores < 1:
            raise ConfigError(
                f"batch_size={self.batch_size}, ranks={self.ranks}, micro_batch={self.micro_batch}, "
                f"cores={self.cores}: must be positive"
            )
        sampler.rank_rows(self.batch_size, (0, self.ranks))  # raises if there are more ranks than images

    @property
    def rank_batch(self) -> int:
        """Images per step of the rank that has the most."""
        return sampler.max_rank_rows(self.batch_size, self.ranks)

    @property
    def forward_batch(self) -> int:
        return min(self.micro_batch or self.rank_batch, self.rank_batch)

    @property
    def replicas(self) -> int:
        """Cores that compute parts of a forward batch in parallel. With several ranks, each has one."""
        return self.cores if self.ranks == 1 and self.forward_batch >= self.cores * IMAGES_PER_CORE else 1

    @property
    def accumulates(self) -> bool:
        return self.forward_batch < self.rank_batch

    @property
    def shards(self) -> int:
        return self.ranks if self.shard == "full" else 1

    @property
    def matmul_bytes(self) -> int:
        """Bytes of a number in matrix products. The residual stream stays float32."""
        return 2 if self.precision == "bf16" else 4

    def replace(self, **changes: Any) -> "Job":
        return dataclasses.replace(self, **changes)

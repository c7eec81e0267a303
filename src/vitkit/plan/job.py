"""`Job`: what decides how much memory and time a process of a run takes."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from vitkit.data import sampler
from vitkit.errors import ConfigError
from vitkit.model import ViTConfig
from vitkit.runtime.data_parallel import IMAGES_PER_CORE

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Job:
    config: ViTConfig
    batch: int  # images per step, over all ranks
    ranks: int = 1
    micro_batch: int = 0  # images at a time within a rank's share; 0: the whole share
    shard: Literal["none", "full"] = "none"
    checkpoint: bool = False  # activation checkpointing: keep a block's input, compute the rest once more
    optimizer: Literal["adamw", "muon"] = "adamw"
    ema: bool = True
    precision: Literal["fp32", "bf16"] = "fp32"
    device: Device = "cpu"
    cores: int = 1  # that share a step, each with its own gradients (training/data_parallel.py)

    def __post_init__(self) -> None:
        if self.batch < 1 or self.ranks < 1 or self.micro_batch < 0 or self.cores < 1:
            raise ConfigError(
                f"batch={self.batch}, ranks={self.ranks}, micro_batch={self.micro_batch}, cores={self.cores}: "
                "must be positive"
            )
        sampler.rank_rows(self.batch, (0, self.ranks))  # says so where there are more ranks than images

    @property
    def share(self) -> int:
        """Images of a step that fall to the rank that has most of them."""
        return sampler.max_rank_rows(self.batch, self.ranks)

    @property
    def at_a_time(self) -> int:
        return min(self.micro_batch or self.share, self.share)

    @property
    def parts(self) -> int:
        """Of the images at a time, each on a core of its own; several ranks have one each."""
        return self.cores if self.ranks == 1 and self.at_a_time >= self.cores * IMAGES_PER_CORE else 1

    @property
    def accumulates(self) -> bool:
        return self.at_a_time < self.share

    @property
    def narrow(self) -> int:
        """Bytes of a number in the matrix products; what runs from block to block stays float32."""
        return 2 if self.precision == "bf16" else 4

    def replace(self, **changes: Any) -> "Job":
        return dataclasses.replace(self, **changes)

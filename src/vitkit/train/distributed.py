"""One process or many: started by `torchrun`, the same command trains with DDP. The model never hears of ranks."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Gradients are averaged over all processes as they are computed."""
        return DistributedDataParallel(model) if self.size > 1 else model

    def sum(self, values: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def agree(self, flag: bool) -> bool:
        """True everywhere if it is true anywhere."""
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def share(self, value: float) -> float:
        """The main process's value, everywhere."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, src=0)
        return float(tensor)

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()

    def leave(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()


def join(device: str) -> World:
    """The world that torchrun describes in the environment, or a world of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if size == 1:
        return World(0, 1, torch.device(kind))
    local = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group(backend="nccl" if kind == "cuda" else "gloo")
    return World(rank=dist.get_rank(), size=size, device=local)

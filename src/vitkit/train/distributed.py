"""One process or many: started by `torchrun`, the same command trains with DDP. The model never hears of ranks."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitkit.errors import WorkError


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

    def any(self, *flags: bool) -> list[bool]:
        """Each flag true everywhere if it is true anywhere: what one process decides by its clock, all do."""
        if self.size == 1:
            return list(flags)
        return [bool(n) for n in self.sum(torch.tensor([float(f) for f in flags], device=self.device))]

    def first(self, work: Callable[[], None]) -> None:
        """Done by the main process while the others wait; its error is an error everywhere."""
        error: Exception | None = None
        if self.is_main:
            try:
                work()
            except Exception as caught:
                error = caught
        if any(self.any(error is not None)):
            raise error or WorkError("the main process could not go on: see its message")

    def share(self, value: float) -> float:
        """The main process's value, everywhere."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, src=0)
        return float(tensor)

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """The main process's tensors, everywhere."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

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

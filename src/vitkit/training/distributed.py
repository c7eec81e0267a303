"""One process or many: who we are, and how processes agree. Started by `torchrun`, the same command trains on all."""

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store

from vitkit.errors import ConfigError, WorkError

T = TypeVar("T")

PATIENCE = timedelta(days=1)  # while one process looks through a large data set, the others wait


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device
    council: Any = None  # the group of processes in which they agree: on the CPU, whatever the device
    launcher: int = field(default_factory=os.getppid)  # the process that started this one

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def deserted(self) -> bool:
        """The launcher is gone: nobody would stop these processes, or start them again."""
        return self.size > 1 and os.getppid() != self.launcher

    def sum(self, values: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def any(self, *flags: bool) -> list[bool]:
        """Each flag true everywhere if it is true anywhere: what one process decides by its clock, all do."""
        if self.size == 1:
            return list(flags)
        told = torch.tensor([int(f) for f in flags])
        dist.all_reduce(told, group=self.council)
        return [bool(n) for n in told]

    def first(self, work: Callable[[], Any]) -> None:
        """Done by the main process while the others wait; its error is an error everywhere."""
        error: Exception | None = None
        if self.is_main:
            try:
                work()
            except Exception as caught:
                error = caught
        if any(self.any(error is not None)):
            raise error or WorkError("the main process could not go on: see its message")

    def in_turn(self, work: Callable[[], T]) -> T:
        """By the main process first, then by the others, for whom it has left something in a cache."""
        done: list[T] = []
        self.first(lambda: done.append(work()))
        return done[0] if self.is_main else work()

    def share(self, value: float) -> float:
        """The main process's value, everywhere."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.broadcast(tensor, src=0, group=self.council)
        return float(tensor)

    def tell(self, value: Any) -> Any:
        """The same for anything that is no number; slower."""
        if self.size == 1:
            return value
        told = [value]
        dist.broadcast_object_list(told, src=0, group=self.council)
        return told[0]

    def everyones(self, value: T) -> list[T]:
        """The values of all processes, by rank, everywhere."""
        found = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(found, value, group=self.council)
        return found

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
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else _usable(device)
    if size == 1:
        return World(0, 1, torch.device(kind))
    local = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(local)
    rank, backend = int(os.environ["RANK"]), "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        dist.init_process_group(backend, store=_meet(rank, size), rank=rank, world_size=size)
    else:
        dist.init_process_group(backend)
    return World(rank, size, local, council=dist.new_group(backend="gloo", timeout=PATIENCE))


def _usable(device: str) -> str:
    """A GPU is not touched: each process will take its own."""
    try:
        if torch.device(device).type != "cuda":
            torch.empty(0, device=device)
        elif not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU")
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"machine.device={device} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def _meet(rank: int, size: int) -> Store:
    """A corner of torchrun's store that belongs to this start of the processes alone.

    torchrun keeps one store for all starts, and in it the addresses of processes that were killed: gloo would call
    those. So the main process calls with a new name, waits until all have answered, and tells who has been heard;
    who answered a call of old is not among them, and listens again.
    """
    address, port, me = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), uuid4().hex
    store = dist.TCPStore(address, port, is_master=False)  # type: ignore[attr-defined]  # public, but not in __all__
    if rank == 0:
        store.set("call", me)
        heard = [store.get(f"{me}/{other}").decode() for other in range(1, size)]  # waits for each
        store.set(f"{me}/heard", " ".join(heard))
        return PrefixStore(me, store)
    while True:
        call = store.get("call").decode()
        store.set(f"{call}/{rank}", me)
        with contextlib.suppress(dist.DistStoreError):  # no answer for now
            store.wait([f"{call}/heard"], timedelta(seconds=1))
            if me in store.get(f"{call}/heard").decode().split():
                return PrefixStore(call, store)
            time.sleep(0.1)


def job_name() -> str:
    """The name of the job that torchrun runs: it outlives processes that are started again; empty without torchrun.

    The id that was given with --rdzv-id or made up by --standalone. Without either it is that of the launcher, which
    for the main process is always the one on the first machine.
    """
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"{platform.node()}-{os.getppid()}" if name == "none" else name

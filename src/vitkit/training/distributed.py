"""The process group of a run: rank, device and the collectives that training needs.

`torchrun` or `launch.py` starts the processes. A single process is a world of size 1, with trivial collectives.
"""

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

TIMEOUT = timedelta(days=1)  # the other ranks wait while the main process reads a large data set


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device
    cpu_group: Any = None  # a gloo group for values on the CPU, whatever the device
    launcher: int = field(default_factory=os.getppid)  # process id of the parent

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def launcher_died(self) -> bool:
        """True if the launcher has ended: nothing would stop or restart these processes then."""
        return self.size > 1 and os.getppid() != self.launcher

    def sum(self, values: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is true on any rank, so that all ranks take the same decision."""
        if self.size == 1:
            return list(flags)
        counts = torch.tensor([int(f) for f in flags])
        dist.all_reduce(counts, group=self.cpu_group)
        return [bool(n) for n in counts]

    def on_main(self, work: Callable[[], Any]) -> None:
        """Run `work` on the main process while the others wait. If it fails, every rank raises."""
        error: Exception | None = None
        if self.is_main:
            try:
                work()
            except Exception as caught:
                error = caught
        if any(self.any(error is not None)):
            raise error or WorkError("the main process failed: see its error message")

    def main_first(self, work: Callable[[], T]) -> T:
        """Run `work` on the main process, then on the others, which find cached results. Return each rank's result."""
        done: list[T] = []
        self.on_main(lambda: done.append(work()))
        return done[0] if self.is_main else work()

    def broadcast_scalar(self, value: float) -> float:
        """Return the main process's value on every rank."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.broadcast(tensor, src=0, group=self.cpu_group)
        return float(tensor)

    def broadcast_object(self, value: Any) -> Any:
        """Return the main process's value, which must be picklable, on every rank."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.cpu_group)
        return values[0]

    def broadcast_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite the tensors of every rank with those of the main process."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in rank order, on every rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, group=self.cpu_group)
        return values

    def leave(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()


def join(device: str) -> World:
    """Join the process group that the environment variables of torchrun describe, or return a world of one process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else _check_device(device)
    if size == 1:
        return World(0, 1, torch.device(kind))
    local = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(local)
    rank, backend = int(os.environ["RANK"]), "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        dist.init_process_group(backend, store=_rendezvous(rank, size), rank=rank, world_size=size)
    else:
        dist.init_process_group(backend)
    return World(rank, size, local, cpu_group=dist.new_group(backend="gloo", timeout=TIMEOUT))


def _check_device(device: str) -> str:
    """Return the name of the device; raise if it is not usable. No GPU is initialised: each rank selects its own."""
    try:
        if torch.device(device).type != "cuda":
            torch.empty(0, device=device)
        elif not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU")
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"machine.device={device} is not available: {str(error).splitlines()[0]}") from error
    return device


def _rendezvous(rank: int, size: int) -> Store:
    """Return torchrun's store under a key prefix that only this start of the processes uses.

    torchrun keeps one store across restarts, with the addresses of killed processes, to which gloo would connect. So
    the main process publishes a new id, waits for all ranks to answer it, and then acknowledges them. A rank that
    answered a stale rendezvous is not acknowledged and retries.
    """
    address, port, me = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), uuid4().hex
    store = dist.TCPStore(address, port, is_master=False)  # type: ignore[attr-defined]  # public, but not in __all__
    if rank == 0:
        store.set("call", me)
        answers = [store.get(f"{me}/{other}").decode() for other in range(1, size)]  # waits for each
        store.set(f"{me}/heard", " ".join(answers))
        return PrefixStore(me, store)
    while True:
        call = store.get("call").decode()
        store.set(f"{call}/{rank}", me)
        with contextlib.suppress(dist.DistStoreError):  # not acknowledged within a second
            store.wait([f"{call}/heard"], timedelta(seconds=1))
            if me in store.get(f"{call}/heard").decode().split():
                return PrefixStore(call, store)
            time.sleep(0.1)


def job_id() -> str:
    """Return the id of torchrun's job, which stays the same across restarts of its processes; empty without torchrun.

    It is the id of --rdzv-id or the one that --standalone makes. Without either, it is the launcher's host and process
    id, because the main process always runs on the first machine.
    """
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"{platform.node()}-{os.getppid()}" if name == "none" else name

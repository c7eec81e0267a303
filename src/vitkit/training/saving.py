"""Who writes a run's state, and when: at once and by the main process, or in the background by all."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from vitkit.errors import WorkError
from vitkit.training import checkpoint
from vitkit.training import sharded_checkpoint as sharded
from vitkit.training.distributed import World


class Saver(Protocol):
    def write(self, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Called by all processes at the same step."""
        ...

    def wait(self) -> None:
        """Until what was given to write is on the disk."""
        ...


@dataclass(frozen=True)
class WholeSaver:
    """The main process has everything, and writes it before it goes on."""

    folder: Path
    world: World
    keep: int

    def write(self, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        if self.world.is_main:
            checkpoint.write(self.folder, step, tensors, numbers, self.keep)

    def wait(self) -> None:
        pass


class ShardSaver:
    """Every process copies its part aside and goes on; a thread writes, verifies and names it.

    One save at a time: the next one waits for it. The threads speak through a group of their own, on the CPU, for on
    one group the messages of a save and of a step could be taken for each other.
    """

    def __init__(self, folder: Path, world: World, keep: int) -> None:
        self.folder, self.world, self.keep = folder, world, keep
        self.group = dist.new_group(backend="gloo")
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="save")
        self.pending: Future[None] | None = None

    def write(self, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        self.wait()
        self.world.first(lambda: checkpoint.make_room(self.folder, step))
        self.pending = self.thread.submit(self._write, step, sharded.stage(tensors), numbers)

    def wait(self) -> None:
        pending, self.pending = self.pending, None
        if pending:
            pending.result()

    def _write(self, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        parts = checkpoint.room(self.folder, step)
        try:
            digests = sharded.write(parts, tensors, self.group)
        except (OSError, CheckpointException) as error:
            raise WorkError(f"cannot write {parts}: {error}; free space or choose another folder") from error
        if self.world.is_main:
            checkpoint.adopt(parts, step, digests, numbers, self.keep)

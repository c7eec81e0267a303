"""Tensors that are cut over processes, in a folder: each process writes its part (torch.distributed.checkpoint).

The files are safetensors; the header of each says which part of which tensor it holds. So they can be read by another
number of processes, or by one, and nothing in them is code.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from vitkit.atomic import sha256


def stage(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy in the memory of the CPU, cut as they are: it can be written while the run goes on."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def write(folder: Path, tensors: Mapping[str, Tensor], group: Any) -> dict[str, str]:
    """By all processes of the group at once. Returns the SHA-256 of every file, each taken by who wrote it."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save(dict(tensors), storage_writer=writer, process_group=group)
    mine = {path.name: sha256(path) for path in folder.glob(f"shard-{dist.get_rank(group) + 1:05d}-*")}
    everyones: list[dict[str, str]] = [{} for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(everyones, mine, group=group)
    return {name: digest for each in everyones for name, digest in each.items()}


def read(folder: Path, like: Callable[[str, torch.Size], Tensor]) -> dict[str, Tensor]:
    """All tensors, each put into what `like` gives for its name and shape; by all processes at once, or by one."""
    found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    tensors = {name: like(name, m.size) for name, m in found.items() if isinstance(m, TensorStorageMetadata)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process may well read alone
        load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=not dist.is_initialized())
    return tensors

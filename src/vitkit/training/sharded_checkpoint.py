"""Write and read sharded tensors in a folder: each process writes its own file (torch.distributed.checkpoint).

The files are safetensors, so they contain no code. The header of each lists its shards, so any number of processes can
read them.
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

EmptyLike = Callable[[str, torch.Size], Tensor]  # name and shape of a tensor → an empty one, sharded as needed


def copy_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of the tensors in CPU memory, which can be written while training continues."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def write_shards(folder: Path, tensors: Mapping[str, Tensor], group: Any) -> dict[str, str]:
    """Write the shards of all processes of the group, which call this together. Return each file's SHA-256 by name."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    save(dict(tensors), storage_writer=writer, process_group=group)
    own = {path.name: sha256(path) for path in folder.glob(f"shard-{dist.get_rank(group) + 1:05d}-*")}
    gathered: list[dict[str, str]] = [{} for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(gathered, own, group=group)
    return {name: digest for each in gathered for name, digest in each.items()}


def read_shards(folder: Path, empty_like: EmptyLike) -> dict[str, Tensor]:
    """Return all tensors, each read into the one that `empty_like` makes. One process or all together call this."""
    metadata = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    tensors = {name: empty_like(name, m.size) for name, m in metadata.items() if isinstance(m, TensorStorageMetadata)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # intended for one process
        load(tensors, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=not dist.is_initialized())
    return tensors

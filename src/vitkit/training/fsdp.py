"""Data parallelism over processes, applied from outside: the model itself knows nothing of ranks.

    DDP     every process holds the complete model, gradients are averaged (the default)
    FSDP2   weights, gradients, EMA and optimizer state are sharded over the processes; the weights of a block are
            gathered while it runs and freed afterwards (`parallel.shard=full`)

A sharded tensor is a DTensor. Element-wise operations work on the local shards. Gathering a full tensor is a
collective: all processes have to take part.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from vitkit.model import ViT
from vitkit.training.distributed import World
from vitkit.training.recipe import Recipe


def uses_sharding(recipe: Recipe, world: World) -> bool:
    return recipe.parallel.shard == "full" and world.size > 1


def shard_model(model: ViT, world: World, bf16: bool) -> None:
    """Shard every block, then the rest of the model, over all processes, in place.

    With `bf16`, weights are gathered and used in bfloat16; the stored weights and the gradient sum are float32. Weights
    are freed after each forward, so between calls the parameters are always the local shards.
    """
    mesh = init_device_mesh(world.device.type, (world.size,))
    dtypes = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if bf16 else {}
    for each in (*model.blocks, model):  # images are cast when they enter the model; inside, autocast does it
        policy = MixedPrecisionPolicy(**dtypes, cast_forward_inputs=each is model)
        fully_shard(each, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    register_fsdp_forward_method(model, "forward_heads")  # distillation calls this instead of forward


def is_sharded(model: nn.Module) -> bool:
    return isinstance(model, FSDPModule)


def wrap_ddp(module: nn.Module, model: ViT, world: World, all_used: bool = True) -> nn.Module:
    """Return `module`, which contains `model`, wrapped in DDP; with FSDP or a single process, return it unchanged.

    `all_used` is False if a step may leave parameters without a gradient.
    """
    if world.size == 1 or is_sharded(model):
        return module
    return DistributedDataParallel(module, find_unused_parameters=not all_used)


def compile_module(module: nn.Module, model: ViT) -> nn.Module:
    """Return the compiled module. A sharded model is compiled per block, because weights are gathered per block."""
    if not is_sharded(model):
        return cast(nn.Module, torch.compile(module))
    for block in model.blocks:
        block.compile()
    return module


def no_sync_unless_last(module: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Return a context that skips gradient averaging, unless this is the last micro-batch of a step.

    FSDP always averages: gradients before the reduction would take the memory that sharding saves.
    """
    no_sync = getattr(module, "no_sync", None)
    return no_sync() if no_sync and not last else nullcontext()


def local_tensor(tensor: Tensor) -> Tensor:
    """Return the shard of this process, in the same memory; a plain tensor is returned as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor gathered from all processes; a plain tensor is returned as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gather_full(shard: Tensor, like: Tensor) -> Tensor:
    """Return the full tensor, gathered from the local shards of all processes. They are laid out as those of `like`."""
    if not isinstance(like, DTensor):
        return shard
    mesh, shape, stride = like.device_mesh, like.shape, like.stride()
    return DTensor.from_local(shard, mesh, like.placements, run_check=False, shape=shape, stride=stride).full_tensor()


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a full tensor, which every process has, sharded as `like` is."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gather_on_main(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Return all tensors, gathered one by one, on the CPU of the main process. Other ranks return an empty dict."""
    gathered = {}
    for name, tensor in tensors.items():
        complete = full_tensor(tensor.detach())
        if world.is_main:
            gathered[name] = complete.cpu()
    return gathered

"""How many processes hold one model, wrapped from outside: the model never hears of ranks.

    DDP     every process holds all of it; gradients are averaged (the default)
    FSDP2   weights, gradients, average and optimizer state are cut over the processes; those of a block are put
            together when it runs and let go of afterwards (`parallel.shard=full`)

A cut tensor is a DTensor. What works element by element works on each process's part of it; `whole` puts one together,
and all processes have to ask for it at once.
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


def shard(model: ViT, world: World, bf16: bool) -> None:
    """Cut every block and then the rest over all processes, in place; alone there is nothing to cut.

    With `bf16` weights travel and work in bfloat16; what is kept, and the sum of the gradients, is float32. Everything
    is let go of after its forward, so that between two calls the parameters are always the parts.
    """
    if world.size == 1:
        return
    mesh = init_device_mesh(world.device.type, (world.size,))
    half = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if bf16 else {}
    for each in (*model.blocks, model):  # images are cast as they enter; within, autocast sees to it
        policy = MixedPrecisionPolicy(**half, cast_forward_inputs=each is model)
        fully_shard(each, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    register_fsdp_forward_method(model, "forward_heads")  # distillation enters here


def is_sharded(model: nn.Module) -> bool:
    return isinstance(model, FSDPModule)


def replicate(module: nn.Module, model: ViT, world: World) -> nn.Module:
    """`module`, around `model`, with gradients averaged over all processes as they are computed."""
    return module if world.size == 1 or is_sharded(model) else DistributedDataParallel(module)


def compiled(module: nn.Module, model: ViT) -> nn.Module:
    """The whole in one piece; block by block where the blocks' weights come and go between them."""
    if not is_sharded(model):
        return cast(nn.Module, torch.compile(module))
    for block in model.blocks:
        block.compile()
    return module


def holding(module: nn.Module, more: bool) -> AbstractContextManager[None]:
    """Gradients of which `more` follow in this step need not be averaged yet.

    Cut ones are: kept whole until the last, they would take the memory that cutting saves.
    """
    no_sync = getattr(module, "no_sync", None)
    return no_sync() if more and no_sync else nullcontext()


def part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor; the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def assemble(mine: Tensor, like: Tensor) -> Tensor:
    """The whole of which every process holds a part, where it is cut as `like` is."""
    if not isinstance(like, DTensor):
        return mine
    mesh, shape, stride = like.device_mesh, like.shape, like.stride()
    return DTensor.from_local(mine, mesh, like.placements, run_check=False, shape=shape, stride=stride).full_tensor()


def cut(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor that every process has, cut as `like` is: each takes its part."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gather(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """All of them whole in the main process, one after the other; none in the others."""
    found = {}
    for name, tensor in tensors.items():
        complete = whole(tensor.detach())
        if world.is_main:
            found[name] = complete.cpu()
    return found

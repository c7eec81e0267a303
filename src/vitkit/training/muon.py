"""Muon (Jordan et al. 2024): momentum that is orthogonalised, matrix by matrix, before it is applied.

`torch.optim.Muon` iterates over single matrices in bfloat16. That suits a GPU, but a CPU without bfloat16 instructions
emulates them, and the update takes longer than the gradients of a small model. Here matrices of equal shape are
batched, in a precision that is fast on the device. The update rule is the same, and tested to be.

Only a complete matrix can be orthogonalised. For a sharded one (`fsdp.py`) the momentum is gathered, one matrix at a
time, every process computes the same update, and each applies its own shard of it.
"""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributed.tensor import DTensor

from vitkit.runtime.threaded_inference import thread_pool
from vitkit.training.fsdp import gather_full, local_tensor, shard_like

QUINTIC = (3.4445, -4.7750, 2.0315)  # steepest at zero: five rounds bring all singular values to about 0.7 … 1.2
ROUNDS = 5
MOMENTUM = 0.95


def orthogonalize(matrices: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Return an approximation of U Vᵀ for each matrix U S Vᵀ, by the Newton–Schulz iteration."""
    a, b, c = QUINTIC
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices  # so that the Gram matrix is the smaller one
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Updates matrices by orthogonalised momentum. Several `cores` divide the shapes; the result has the same bits."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, cores: int = 1) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.cores = cores

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is ever given
        work = [(group, *each) for group in self.param_groups for each in _by_shape(group["params"]).items()]
        work.sort(key=lambda each: -each[1].numel() * len(each[2]))  # the longest first, to balance the cores
        list((thread_pool(self.cores).map if self.cores > 1 else map)(lambda each: self._update_group(*each), work))

    def _update_group(self, group: dict[str, Any], shape: torch.Size, parameters: list[Tensor]) -> None:
        self._update(parameters, group["lr"], group["weight_decay"], max(shape[0], shape[1:].numel()))

    @torch.no_grad()
    def _update(self, parameters: list[Tensor], lr: float, weight_decay: float, longer_side: int) -> None:
        gradients = [local_tensor(p.grad) for p in parameters if p.grad is not None]
        momenta = [local_tensor(self._momentum(p)) for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        nesterov = list(torch._foreach_lerp(gradients, momenta, MOMENTUM))
        if isinstance(parameters[0], DTensor):
            updates = [_orthogonal_shard(shard, p) for shard, p in zip(nesterov, parameters, strict=True)]
        else:
            updates = _orthogonal(nesterov)
        weights = [local_tensor(p) for p in parameters]
        torch._foreach_mul_(weights, 1 - lr * weight_decay)
        # An orthogonal matrix has entries of size 1/√(longer side); AdamW's updates are about 0.2 (Liu et al. 2025).
        torch._foreach_add_(weights, updates, alpha=-lr * 0.2 * longer_side**0.5)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state["momentum_buffer"]


def _by_shape(parameters: list[Tensor]) -> dict[torch.Size, list[Tensor]]:
    """Return the parameters that have a gradient, by shape."""
    shapes: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            shapes.setdefault(parameter.shape, []).append(parameter)
    return shapes


def _orthogonal(matrices: list[Tensor]) -> list[Tensor]:
    """Return matrices of one shape, orthogonalised. The filters of a convolution are the rows of a matrix."""
    stacked = torch.stack(matrices)
    flat = stacked.flatten(2).to(torch.float32 if stacked.device.type == "cpu" else torch.bfloat16)
    return list(orthogonalize(flat).to(stacked.dtype).view_as(stacked))


def _orthogonal_shard(shard: Tensor, parameter: Tensor) -> Tensor:
    return local_tensor(shard_like(_orthogonal([gather_full(shard, parameter)])[0], parameter))

"""Optimizers: parameter groups, layer-wise learning rates, AdamW and Muon, gradient clipping."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vitkit.model import ViT, ViTConfig
from vitkit.training import recipe
from vitkit.training.fsdp import full_tensor
from vitkit.training.muon import Muon


def make_optimizers(model: ViT, settings: recipe.Optimizer, cores: int = 1) -> list[torch.optim.Optimizer]:
    """Return AdamW, or AdamW and Muon if the settings ask for Muon, which updates the matrices of blocks and stem.

    Every group stores `base_lr`; `set_learning_rate` computes `lr` from it at each step.
    """
    muon, adamw = _parameter_groups(model, settings)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(adamw, lr=settings.lr, betas=settings.betas, fused=True)
    ]
    if muon:
        optimizers.append(Muon(muon, lr=settings.muon_lr, cores=cores))
    return optimizers


def _parameter_groups(model: ViT, s: recipe.Optimizer) -> tuple[list[dict], list[dict]]:
    """Return the groups of Muon and of AdamW: parameters with equal weight decay and learning rate."""
    groups: dict[tuple, list[nn.Parameter]] = {}
    undecayed = model.no_weight_decay()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            scale = s.layer_decay ** (model.config.depth + 1 - layer_index(name, model.config.depth))
            is_muon = s.name == "muon" and uses_muon(name, parameter, model.config)
            decays = parameter.ndim >= 2 and name not in undecayed  # neither do biases and norms
            groups.setdefault((is_muon, decays, scale), []).append(parameter)
    muon: list[dict] = []
    adamw: list[dict] = []
    for (is_muon, decays, scale), parameters in groups.items():
        lr = (s.muon_lr if is_muon else s.lr) * scale
        (muon if is_muon else adamw).append(
            {"params": parameters, "base_lr": lr, "lr": lr, "weight_decay": s.weight_decay if decays else 0.0}
        )
    return muon, adamw


def uses_muon(name: str, parameter: Tensor, config: ViTConfig) -> bool:
    """Return True if Muon updates the parameter: a matrix of a block, or filters of a stem except the first ones."""
    if name.startswith("blocks."):
        return parameter.ndim == 2
    filters = name.startswith("patch_embed.") and parameter.ndim == 4
    return filters and bool(config.stem) and name != "patch_embed.stem.0.weight"


def layer_index(name: str, depth: int) -> int:
    """Return a parameter's layer: 0 for the embedding, 1 … depth for the blocks, depth + 1 for everything after."""
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    first = ("patch_embed", "cls_token", "dist_token", "reg_token", "pos_embed", "norm_pre")
    return 0 if name.startswith(first) else depth + 1


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Set the learning rate of every group to `factor` times its `base_lr`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor


def clip_gradients(optimizers: Iterable[torch.optim.Optimizer], max_norm: float) -> Tensor:
    """Scale all gradients to a joint norm of at most `max_norm` (0: no clipping). Return the norm before clipping."""
    parameters = [p for each in optimizers for group in each.param_groups for p in group["params"]]
    norm = full_tensor(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True))
    nn.utils.clip_grads_with_norm_(parameters, max_norm or float("inf"), norm, foreach=True)
    return norm

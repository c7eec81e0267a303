"""Optimizers: parameter groups, layer-wise learning rates, AdamW, Muon and others, gradient clipping."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitkit.errors import ConfigError, UnknownNameError
from vitkit.model import ViT, ViTConfig
from vitkit.training import recipe
from vitkit.training.fsdp import full_tensor
from vitkit.training.muon import Muon

Groups = list[dict[str, Any]]
OptimizerFactory = Callable[
    [Groups], torch.optim.Optimizer
]  # parameter groups with `lr` and `weight_decay` → optimizer

_UNSUITABLE = ("LBFGS", "SparseAdam")  # they call the loss again, or need sparse gradients


def make_optimizers(
    model: ViT,
    settings: recipe.Optimizer,
    cores: int = 1,
    objective: object = None,
    factory: OptimizerFactory | None = None,
) -> list[torch.optim.Optimizer]:
    """Return the optimizer of the settings or of the factory; with Muon, AdamW and Muon.

    The parameters of an objective that is a module are trained too. Every group stores `base_lr`; `set_learning_rate`
    computes `lr` from it at each step.
    """
    muon, others = _parameter_groups(model, settings)
    if isinstance(objective, nn.Module):
        others += _objective_groups(objective, settings)
    optimizers = [_make(others, settings, factory)]
    if muon:
        optimizers.append(Muon(muon, lr=settings.muon_lr, cores=cores))
    for group in optimizers[0].param_groups:
        group.setdefault("base_lr", group["lr"])
    return optimizers


def check_optimizer(settings: recipe.Optimizer, factory: OptimizerFactory | None = None) -> None:
    """Raise if the settings name no optimizer, or options that it does not have."""
    _make([{"params": [nn.Parameter(torch.zeros(2, 2))], "lr": settings.lr, "weight_decay": 0.0}], settings, factory)


def _make(groups: Groups, settings: recipe.Optimizer, factory: OptimizerFactory | None) -> torch.optim.Optimizer:
    if factory is not None:
        return factory(groups)
    if settings.name in ("adamw", "muon"):
        options = {"betas": settings.betas, "fused": True, **settings.options}
        return _construct(torch.optim.AdamW, groups, settings.lr, options)
    named = {
        name.lower(): found
        for name, found in vars(torch.optim).items()
        if inspect.isclass(found) and issubclass(found, torch.optim.Optimizer) and name not in _UNSUITABLE
    }
    named.pop("optimizer")
    if settings.name.lower() not in named:
        raise UnknownNameError("optimizer", settings.name, named, "optimizer.name: one of torch.optim, or muon")
    return _construct(named[settings.name.lower()], groups, settings.lr, settings.options)


def _construct(
    kind: type[torch.optim.Optimizer], groups: Groups, lr: float, options: Mapping[str, Any]
) -> torch.optim.Optimizer:
    make: Callable[..., torch.optim.Optimizer] = kind
    try:
        return make(groups, lr=lr, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer.options={dict(options)} do not fit {kind.__name__}: {error}") from error


def _objective_groups(objective: nn.Module, s: recipe.Optimizer) -> Groups:
    """Return the trainable parameters of an objective, with weight decay on its matrices."""
    trained = [p for p in objective.parameters() if p.requires_grad]
    parts = [(s.weight_decay, [p for p in trained if p.ndim >= 2]), (0.0, [p for p in trained if p.ndim < 2])]
    return [{"params": ps, "base_lr": s.lr, "lr": s.lr, "weight_decay": decay} for decay, ps in parts if ps]


def _parameter_groups(model: ViT, s: recipe.Optimizer) -> tuple[list[dict], list[dict]]:
    """Return the groups of Muon and of AdamW: parameters with equal weight decay and learning rate."""
    groups: dict[tuple, list[nn.Parameter]] = {}
    undecayed = model.no_weight_decay()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            scale = s.layer_decay ** (model.config.depth + 1 - model.layer_index(name))
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

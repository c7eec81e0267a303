"""Which parameter is updated how: groups, layer-wise rates, AdamW and Muon, and the moving average."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vitkit.model import ViT, ViTConfig
from vitkit.training import recipe
from vitkit.training.fsdp import part, whole
from vitkit.training.muon import Muon


def build(model: ViT, settings: recipe.Optimizer, cores: int = 1) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the matrices of the blocks and the filters of a stem, and AdamW for the rest.

    Every group carries `base_lr`; the schedule sets `lr` from it at each step.
    """
    muon, adamw = _split(model, settings)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(adamw, lr=settings.lr, betas=settings.betas, fused=True)
    ]
    if muon:
        optimizers.append(Muon(muon, lr=settings.muon_lr, cores=cores))
    return optimizers


def _split(model: ViT, s: recipe.Optimizer) -> tuple[list[dict], list[dict]]:
    groups: dict[tuple, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            scale = s.layer_decay ** (model.config.depth + 1 - layer_of(name, model.config.depth))
            is_muon = s.name == "muon" and takes_muon(name, parameter, model.config)
            groups.setdefault((is_muon, decays(name, parameter), scale), []).append(parameter)
    made: tuple[list[dict], list[dict]] = ([], [])
    for (is_muon, decay, scale), parameters in groups.items():
        lr = (s.muon_lr if is_muon else s.lr) * scale
        made[not is_muon].append(
            {"params": parameters, "base_lr": lr, "lr": lr, "weight_decay": s.weight_decay if decay else 0.0}
        )
    return made


def takes_muon(name: str, parameter: Tensor, config: ViTConfig) -> bool:
    """The matrices of the blocks; of a stem all filters but the first, which see pixels."""
    if name.startswith("blocks."):
        return parameter.ndim == 2
    filters = name.startswith("patch_embed.") and parameter.ndim == 4
    return filters and bool(config.stem) and name != "patch_embed.stem.0.weight"


def decays(name: str, parameter: Tensor) -> bool:
    """Matrices and filters are pulled towards zero; biases, norms, tokens and positions are not."""
    return parameter.ndim >= 2 and name not in ("cls_token", "dist_token", "reg_token", "pos_embed", "attn_pool.latent")


def layer_of(name: str, depth: int) -> int:
    """0 for the embedding, 1 … depth for the blocks, depth + 1 for what follows them."""
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    first = ("patch_embed", "cls_token", "dist_token", "reg_token", "pos_embed", "norm_pre")
    return 0 if name.startswith(first) else depth + 1


def set_rate(optimizers: Iterable[torch.optim.Optimizer], share: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * share


def clip(optimizers: Iterable[torch.optim.Optimizer], limit: float) -> Tensor:
    """Scale all gradients down to this norm over all of them; 0: leave them. Returns the norm that they had."""
    parameters = [p for each in optimizers for group in each.param_groups for p in group["params"]]
    norm = whole(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True))
    nn.utils.clip_grads_with_norm_(parameters, limit or float("inf"), norm, foreach=True)
    return norm


class Average:
    """The exponential moving average of a model's weights, kept beside it."""

    def __init__(self, model: nn.Module) -> None:
        self.names = [name for name, _ in model.named_parameters()]
        self.tensors = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model: nn.Module, decay: float) -> None:
        ours, theirs = [part(t) for t in self.tensors], [part(p.detach()) for p in model.parameters()]
        torch._foreach_lerp_(ours, theirs, 1 - decay)

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Exchange the two; once more to undo."""
        for average, parameter in zip(self.tensors, model.parameters(), strict=True):
            kept = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(kept)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.tensors, strict=True))

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, tensor in zip(self.names, self.tensors, strict=True):
            tensor.copy_(state[name])

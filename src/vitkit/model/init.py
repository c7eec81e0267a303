"""The first weights of a ViT, drawn in a fixed order from one generator: the same seed, the same model.

Linear layers get a truncated normal of 0.02 and zero biases, as in timm and DeiT; the patch projection and the stem
keep the variance of their input (LeCun, as in the paper's code); every block draws its own numbers.
"""

import math

import torch
from torch import nn

from vitkit.model.block import LayerScale
from vitkit.model.head import AttentionPool


@torch.no_grad()
def init_weights(model: nn.Module, generator: torch.Generator | None = None) -> None:
    def normal(tensor: torch.Tensor, std: float) -> None:
        nn.init.trunc_normal_(tensor, std=std, a=-2 * std, b=2 * std, generator=generator)

    for module in model.modules():
        match module:
            case nn.Linear():
                normal(module.weight, 0.02)
            case nn.Conv2d():
                normal(module.weight, 1 / math.sqrt(module.weight[0].numel()))
            case nn.LayerNorm():
                nn.init.ones_(module.weight)
            case LayerScale():
                nn.init.constant_(module.gamma, module.value)
            case AttentionPool():
                normal(module.latent, 0.02)
        if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
            nn.init.zeros_(bias)
    for name in ("cls_token", "reg_token", "pos_embed"):
        if getattr(model, name, None) is not None:
            normal(getattr(model, name), 0.02)

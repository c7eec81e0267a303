"""Initial weights of a ViT, drawn in a fixed order from one generator: the same seed gives the same model.

normal   linear layers get a truncated normal with a deviation of 0.02, as in timm and DeiT; suits widths of hundreds
xavier   linear layers get a uniform scaled by their width (Glorot), as in the paper's code; suits any width

In both, biases are zero, and tokens and positions get the truncated normal. The patch projection and the stem keep the
variance of their input (LeCun, as in the paper's code). Every block draws its own numbers. A module of your own that
has parameters defines `init_weights(generator)`, which is called in its turn.
"""

import math

import torch
from torch import nn

from vitkit.model.block import LayerScale
from vitkit.model.head import AttentionPool

_STACKED = {"qkv": 3, "kv": 2}  # weights that concatenate several matrices, each initialised by its own width
_TRUNCATED_STD = 0.87962566  # the standard deviation of a unit normal that is truncated at ±2


def find_uninitialized(model: nn.Module) -> str | None:
    """Return the name of the first parameter or buffer with a NaN, or None."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return next((name for name, tensor in tensors if tensor.is_floating_point() and tensor.sum().isnan()), None)


@torch.no_grad()
def init_weights(model: nn.Module, generator: torch.Generator | None = None, xavier: bool = False) -> None:
    def normal(tensor: torch.Tensor, std: float) -> None:
        full_std = std / _TRUNCATED_STD
        nn.init.trunc_normal_(tensor, std=full_std, a=-2 * full_std, b=2 * full_std, generator=generator)

    for path, module in model.named_modules():
        match module:
            case nn.Linear() if xavier:
                for matrix in module.weight.chunk(_STACKED.get(path.split(".")[-1], 1)):
                    nn.init.xavier_uniform_(matrix, generator=generator)
            case nn.Linear():
                normal(module.weight, 0.02)
            case nn.Conv2d():
                normal(module.weight, 1 / math.sqrt(module.weight[0].numel()))
            case nn.LayerNorm() | nn.RMSNorm():
                nn.init.ones_(module.weight)
            case LayerScale():
                nn.init.constant_(module.gamma, module.value)
            case AttentionPool():
                normal(module.latent, 0.02)
            case _ if callable(init_own := getattr(module, "init_weights", None)):
                init_own(generator)
        if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
            nn.init.zeros_(bias)
    for name in ("cls_token", "dist_token", "reg_token", "pos_embed"):
        if getattr(model, name, None) is not None:
            normal(getattr(model, name), 0.02)

"""Attention as a picture: how much each patch is looked at."""

from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitkit.model import ViT


@torch.no_grad()
def attention_map(
    model: ViT, images: Float[Tensor, "b c h w"], layer: int = -1, heads: Sequence[int] | None = None
) -> Float[Tensor, "b heads gh gw"]:
    """Where the model's summary of the image looks, per head: exact softmax weights, cut to the patches.

    A class token that is pooled has a row of its own. Otherwise it is the mean over the rows of the tokens that are
    pooled, for their average is what the classifier sees.
    """
    c = model.config
    grid = images.shape[2] // c.patch_size[0], images.shape[3] // c.patch_size[1]
    tokens = c.prefix + grid[0] * grid[1]
    pooled = {"cls": [0], "mean_all": None}.get(c.pooling, list(range(c.prefix, tokens)))
    weights = model.attention(images, layers=[layer], heads=heads, queries=pooled)[0].mean(dim=2)
    return rearrange(weights[:, :, c.prefix :], "b h (gh gw) -> b h gh gw", gh=grid[0])


def whose_attention(model: ViT) -> str:
    """What the rows of `attention_map` are, in words."""
    return {"cls": "the class token's", "mean_all": "mean over all tokens"}.get(
        model.config.pooling, "mean over patches"
    )

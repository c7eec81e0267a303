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

    With a class token this is the class token's row. A mean-pooled model has no such row: there, the mean over the rows
    of all patches, whose average is what the classifier sees.
    """
    c = model.config
    queries = [0] if c.class_token else None
    weights = model.attention(images, layers=[layer], heads=heads, queries=queries)[0].mean(dim=2)
    return rearrange(weights[:, :, c.prefix :], "b h (gh gw) -> b h gh gw", gh=images.shape[2] // c.patch_size[0])

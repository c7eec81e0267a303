"""Attention as a picture: how much each patch is looked at, by whom, in which layer and head.

Only the rows asked for are computed, as exact softmax weights, while the forward runs on its fused kernel.

Shapes: b batch, h heads, t tokens, (gh, gw) the grid of patches.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitkit.errors import InputError
from vitkit.explanation.capture import read_attention
from vitkit.model import ViT
from vitkit.model.attention import attention_weights
from vitkit.model.config import Pair
from vitkit.model.validation import resolve_indices

Query = Literal["class", "mean"] | Pair
ROWS_AT_ONCE = 64  # of a mean over many rows: no more of them are held than the fused forward takes itself


def attention_map(
    model: ViT,
    images: Float[Tensor, "b c h w"],
    layer: int = -1,
    heads: Sequence[int] | None = None,
    query: Query | None = None,
) -> Float[Tensor, "b heads gh gw"]:
    """One layer of `attention_maps`."""
    return attention_maps(model, images, [layer], heads, query)[0]


def attention_maps(
    model: ViT,
    images: Float[Tensor, "b c h w"],
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    query: Query | None = None,
) -> Float[Tensor, "layers b heads gh gw"]:
    """Where the model's summary of the image, or a chosen token, looks: exact softmax weights, cut to the patches.

    All layers come from one forward. A class token that is pooled has a row of its own; otherwise the summary is the
    mean over the rows of the tokens that are pooled, for their average is what the classifier sees. What is missing
    to a sum of one is the attention that went to the class token and the registers.
    """
    c = model.config
    wanted = resolve_indices("layer", layers, c.depth)
    chosen = resolve_indices("head", heads, c.heads)
    asked = readout(model, grid_of(model, images), query)
    found, _ = read_attention(model, images, lambda q, k: mean_row(q[:, chosen], k[:, chosen], asked), wanted)
    return torch.stack([to_grid(found[i], model, images) for i in wanted])


def whose_attention(model: ViT) -> str:
    """What the rows of `attention_map` are, in words."""
    if model.config.distillation:
        return "the class and distillation tokens'"
    return {
        "cls": "the class token's",
        "cls_mean": "half the class token's, half the mean over patches",
        "mean_all": "mean over all tokens",
    }.get(model.config.pooling, "mean over patches")


def mean_row(q: Float[Tensor, "b h q e"], k: Float[Tensor, "b h t e"], weights: Tensor) -> Float[Tensor, "b h t"]:
    """The mean, by the weights of the queries, of the rows of softmax(q kᵀ / √e); a few of them at a time."""
    rows = weights.nonzero()[:, 0]
    total = torch.zeros(*k.shape[:3], device=k.device)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        total += torch.einsum("bhqt,q->bht", attention_weights(q[:, :, part], k), weights[part].to(k.device))
    return total


def grid_of(model: ViT, images: Tensor) -> Pair:
    patch = model.config.patch_size
    return images.shape[2] // patch[0], images.shape[3] // patch[1]


def to_grid(values: Float[Tensor, "*b t"], model: ViT, images: Tensor) -> Float[Tensor, "*b gh gw"]:
    """The patches of a row of tokens, where they lie in the image."""
    patches = values[..., model.config.prefix :]
    return rearrange(patches, "... (gh gw) -> ... gh gw", gh=grid_of(model, images)[0])


def readout(model: ViT, grid: Pair, query: Query | None) -> Float[Tensor, "t"]:
    """How much each token counts, in all one: what is pooled by default, or the token that is asked for."""
    c = model.config
    weights = torch.zeros(c.prefix + grid[0] * grid[1])
    classes, patches = weights[: 1 + c.distillation], weights[c.prefix :]
    if query == "class" and not c.class_token:
        raise InputError(
            f"the model has no class token, it pools by {c.pooling!r}: "
            "leave the query out for what it pools, or ask for a patch as ROW,COL"
        )
    if isinstance(query, tuple):
        row, column = query
        if not (0 <= row < grid[0] and 0 <= column < grid[1]):
            raise InputError(
                f"patch {row},{column} is not in the grid of {grid[0]}×{grid[1]} patches: "
                f"rows are 0…{grid[0] - 1}, columns 0…{grid[1] - 1}"
            )
        patches[row * grid[1] + column] = 1
    elif query == "class":
        weights[0] = 1
    elif query is None and c.pooling == "mean_all":
        weights[:] = 1
    elif query is None and c.pooling == "cls":
        classes[:] = 1
    elif query is None and c.pooling == "cls_mean":
        weights[0], patches[:] = 1, 1 / len(patches)
    else:
        patches[:] = 1
    return weights / weights.sum()

"""Attention maps: the attention that each patch receives from a query, per layer and head.

The weights are exact, and computed only for the requested rows; the forward itself runs on its fused kernel.

Shapes: b batch, h heads, t tokens, (gh, gw) the grid of patches.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitkit.errors import InputError
from vitkit.explanation.capture import capture_attention
from vitkit.model import ViT
from vitkit.model.attention import attention_weights
from vitkit.model.config import Pair
from vitkit.model.validation import resolve_indices

Query = Literal["class", "mean"] | Pair
ROWS_PER_CHUNK = 64  # query rows whose weights are in memory at once: no more than the fused forward needs itself


def attention_map(
    model: ViT,
    images: Float[Tensor, "b c h w"],
    layer: int = -1,
    heads: Sequence[int] | None = None,
    query: Query | None = None,
) -> Float[Tensor, "b heads gh gw"]:
    """Return one layer of `attention_maps`."""
    return attention_maps(model, images, [layer], heads, query)[0]


def attention_maps(
    model: ViT,
    images: Float[Tensor, "b c h w"],
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    query: Query | None = None,
) -> Float[Tensor, "layers b heads gh gw"]:
    """Return the exact softmax weights from a query to every patch, all layers from one forward.

    The default query is what the classifier reads: the class token if it is pooled, otherwise the mean over the rows
    of the pooled tokens. Maps sum to less than one, by the attention to the class token and the registers.
    """
    c = model.config
    indices = resolve_indices("layer", layers, c.depth)
    heads = resolve_indices("head", heads, c.heads)
    weights = query_weights(model, patch_grid(model, images), query)
    found, _ = capture_attention(model, images, lambda q, k: mean_attention(q[:, heads], k[:, heads], weights), indices)
    return torch.stack([to_grid(found[i], model, images) for i in indices])


def describe_query(model: ViT) -> str:
    """Return a phrase for people that names the default query of `attention_map`."""
    if model.config.distillation:
        return "the class and distillation tokens'"
    return {
        "cls": "the class token's",
        "cls_mean": "half the class token's, half the mean over patches",
        "mean_all": "mean over all tokens",
    }.get(model.config.pooling, "mean over patches")


def mean_attention(q: Float[Tensor, "b h q e"], k: Float[Tensor, "b h t e"], weights: Tensor) -> Float[Tensor, "b h t"]:
    """Return the mean over the rows of softmax(q kᵀ / √e), weighted by query and computed in chunks."""
    rows = weights.nonzero()[:, 0]
    total = torch.zeros(*k.shape[:3], device=k.device)
    for start in range(0, len(rows), ROWS_PER_CHUNK):
        part = rows[start : start + ROWS_PER_CHUNK]
        total += torch.einsum("bhqt,q->bht", attention_weights(q[:, :, part], k), weights[part].to(k.device))
    return total


def patch_grid(model: ViT, images: Tensor) -> Pair:
    """Return the rows and columns of patches of a batch."""
    patch = model.config.patch_size
    return images.shape[2] // patch[0], images.shape[3] // patch[1]


def to_grid(values: Float[Tensor, "*b t"], model: ViT, images: Tensor) -> Float[Tensor, "*b gh gw"]:
    """Drop the tokens before the patches, if there are any, and arrange the patches as in the image."""
    rows, columns = patch_grid(model, images)
    return rearrange(values[..., -rows * columns :], "... (gh gw) -> ... gh gw", gh=rows)


def query_weights(model: ViT, grid: Pair, query: Query | None) -> Float[Tensor, "t"]:
    """Return a weight per token, with sum one: the pooled tokens by default, or the requested query."""
    c = model.config
    weights = torch.zeros(c.prefix + grid[0] * grid[1])
    classes, patches = weights[: 1 + c.distillation], weights[c.prefix :]
    if query == "class" and not c.class_token:
        raise InputError(
            f"the model has no class token, its pooling is {c.pooling!r}: "
            "omit the query to use the pooled tokens, or name a patch as ROW,COL"
        )
    if isinstance(query, tuple):
        row, column = query
        if not (0 <= row < grid[0] and 0 <= column < grid[1]):
            raise InputError(
                f"patch {row},{column} is outside the grid of {grid[0]}×{grid[1]} patches: "
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

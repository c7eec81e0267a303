"""Maps that propagate attention through all layers, with or without the gradient of a class.

    rollout      R ← Â R,      Â = ½ A + ½ I                    A: mean of the heads (Abnar & Zuidema 2020)
    gradient     R ← Â R,      Â = Ā + I, rows scaled to one    Ā: mean of the heads of (∇A ⊙ A)⁺
    attribution  R ← R + Ā R                                    (Chefer et al. 2021, generic attention, eq. 5 and 6)

R starts as I. ∇A is the gradient of the class's logit with respect to the attention weights of one layer; negative
contributions are set to 0. The map is the row of R that the classifier reads: that of the class token, the mean over
the pooled tokens, or their combination by attention pooling.

Shapes: b batch, h heads, t tokens.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from vitkit.explanation.attention import Query, patch_grid, query_weights, to_grid
from vitkit.explanation.capture import capture_attention, differentiable_attention
from vitkit.model import ViT
from vitkit.model.attention import attention_weights

Maps = Float[Tensor, "b gh gw"]
Logits = Float[Tensor, "b k"]


def rollout(
    model: ViT, images: Float[Tensor, "b c h w"], layer: int | None = None, query: Query | None = None
) -> tuple[Maps, Logits]:
    """Multiply attention through the layers, up to and including `layer` (the last by default)."""
    depth = model.config.depth
    found, logits = capture_attention(model, images, lambda q, k: attention_weights(q, k).mean(dim=1))
    last = depth - 1 if layer is None else layer % depth
    rolled = _identity(found[0])
    pool = found.get(depth) if query is None and last == depth - 1 else None
    with torch.autocast(images.device.type, enabled=False):
        for i in range(last + 1):
            rolled = (found[i] @ rolled + rolled) / 2
        return _pooled_row(rolled, model, images, query, pool), logits


def gradient(model: ViT, images: Float[Tensor, "b c h w"], target: Tensor | None = None) -> tuple[Maps, Logits]:
    """Roll out attention weighted by the gradient of the class, instead of the attention itself."""
    return _class_relevance(model, images, target, lambda a, r: (a @ r + r) / (1 + a.sum(dim=-1, keepdim=True)))


def attribution(model: ViT, images: Float[Tensor, "b c h w"], target: Tensor | None = None) -> tuple[Maps, Logits]:
    """Accumulate the relevance of a class through the layers."""
    return _class_relevance(model, images, target, lambda a, r: r + a @ r)


def gradient_memory(model: ViT, image_size: tuple[int, int]) -> int:
    """Return an estimate of the bytes that `gradient` and `attribution` need for one image, besides the weights.

    They keep the attention weights of all layers, their gradients, and the activations of the backward pass. The
    factors are from ViT-S and ViT-B with 197 to 785 tokens in float32, where the estimate was 5 % to 17 % too high.
    """
    c = model.config
    tokens = c.prefix + image_size[0] * image_size[1] // (c.patch_size[0] * c.patch_size[1])
    return int(4 * c.depth * (3.5 * c.heads * tokens**2 + 14 * tokens * c.width))


def _class_relevance(
    model: ViT, images: Tensor, target: Tensor | None, update: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Maps, Logits]:
    """Apply R ← `update(Ā, R)` through the layers; return the pooled row and the logits. No gradients are kept."""
    weights, logits = differentiable_attention(model, images)
    target = logits.argmax(dim=1) if target is None else target
    with torch.inference_mode(False), torch.enable_grad():
        score = logits.gather(1, target[:, None]).sum()  # images are independent: each gets its own gradient
        gradients = torch.autograd.grad(score, weights)
    weighted = [(g * w).clamp(min=0).mean(dim=1).detach() for g, w in zip(gradients, weights, strict=True)]
    relevance, depth = _identity(weighted[0]), model.config.depth
    with torch.autocast(images.device.type, enabled=False):
        for layer in weighted[:depth]:
            relevance = update(layer, relevance)
        return _pooled_row(relevance, model, images, None, *weighted[depth:]), logits.detach()


def _pooled_row(
    matrix: Float[Tensor, "b t t"], model: ViT, images: Tensor, query: Query | None, pool: Tensor | None = None
) -> Maps:
    if pool is not None:
        row = (pool @ matrix[:, -pool.shape[-1] :])[:, 0]  # the query may skip the prefix tokens
    else:
        row = query_weights(model, patch_grid(model, images), query).to(matrix.device) @ matrix
    return to_grid(row, model, images)


def _identity(like: Float[Tensor, "b q t"]) -> Float[Tensor, "b t t"]:
    return torch.eye(like.shape[-1], device=like.device).expand(like.shape[0], -1, -1)

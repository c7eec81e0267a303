"""The model's own pictures: what its weights look like (figure 7 of the ViT paper), and its tokens.

Shapes: b batch, h heads, t tokens, d width, (gh, gw) the grid of patches, (ph, pw) pixels of a patch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitkit.evaluation.predict import eval_mode
from vitkit.explanation.attention import ROWS_PER_CHUNK, patch_grid, to_grid
from vitkit.explanation.capture import capture_attention
from vitkit.model import ViT
from vitkit.model.attention import attention_weights
from vitkit.model.config import Pair
from vitkit.model.pos_embed import axial_rope, sincos_table


@dataclass(frozen=True)
class Similarity:
    """How alike the positions are: `values[r, c]` is the map of the patch at row r, column c."""

    values: np.ndarray  # (gh, gw, gh, gw)
    about: str


@torch.no_grad()
def patch_filters(model: ViT, count: int = 28) -> tuple[Float[np.ndarray, "n ph pw c"], Float[np.ndarray, "n"]]:
    """The first principal components of the patch-embedding filters, and the share of the variance of each.

    Behind a convolutional stem they are filters of its feature map: of many channels the first three are kept.
    """
    weight = model.patch_embed.proj.weight.float()
    flat = weight.flatten(1) - weight.flatten(1).mean(dim=0)
    _, scale, components = torch.linalg.svd(flat, full_matrices=False)
    shapes = components[:count].view(-1, *weight.shape[1:])
    share = scale**2 / (scale**2).sum()
    return rearrange(shapes[:, :3], "n c ph pw -> n ph pw c").cpu().numpy(), share[:count].cpu().numpy()


@torch.no_grad()
def position_similarity(model: ViT) -> Similarity | None:
    """Cosine similarity of the position embeddings of all pairs of patches; none where there are no positions.

    Rotary models add no embedding. What their attention knows of two places is by how much the rotations differ: a
    query equal to its key, turned by both, keeps the mean cosine of the differences of the angles.
    """
    c = model.config
    if model.pos_embed is not None:
        table, about = model.pos_embed[0, model.class_rows :].float(), "cosine similarity of position embeddings"
    elif c.position == "sincos":
        table, about = sincos_table(c.grid, c.width), "cosine similarity of the fixed sine-cosine positions"
    elif c.position == "rotary":
        table = torch.cat(axial_rope(c.grid, c.head_width), dim=1)
        about = "mean cosine of the angles between rotary positions"
    else:
        return None
    unit = table / table.norm(dim=1, keepdim=True)
    values = rearrange(unit @ unit.T, "(r c) (gh gw) -> r c gh gw", r=c.grid[0], gh=c.grid[0])
    return Similarity(values.cpu().numpy(), about)


def attention_distance(model: ViT, images: Float[Tensor, "b c h w"]) -> Float[np.ndarray, "layers heads"]:
    """How far each head looks, in pixels: the distance between patches, weighted by attention, averaged over queries
    and images. Attention to the class token and registers has no distance and is left out."""
    prefix = model.config.prefix
    far = patch_distances(patch_grid(model, images), model.config.patch_size).to(images.device)

    def read(q: Tensor, k: Tensor) -> Tensor:
        total = torch.zeros(q.shape[1], device=q.device)
        for start in range(0, len(far), ROWS_PER_CHUNK):
            rows = slice(prefix + start, prefix + start + ROWS_PER_CHUNK)
            weights = attention_weights(q[:, :, rows], k)[..., prefix:]
            length = torch.einsum("bhqt,qt->bhq", weights, far[start : start + ROWS_PER_CHUNK]) / weights.sum(dim=-1)
            total += length.sum(dim=(0, 2))
        return total / (len(q) * len(far))

    with eval_mode(model):
        found, _ = capture_attention(model, images, read, range(model.config.depth))
    return torch.stack([found[i] for i in range(model.config.depth)]).cpu().numpy()


def patch_distances(grid: Pair, patch: Pair) -> Float[Tensor, "n n"]:
    """Pixels between the centres of all pairs of patches."""
    rows, columns = torch.meshgrid(
        *(torch.arange(g) * float(p) for g, p in zip(grid, patch, strict=True)), indexing="ij"
    )
    centres = torch.stack([rows.flatten(), columns.flatten()], dim=1)
    return torch.cdist(centres, centres)


@torch.no_grad()
def feature_colours(model: ViT, images: Float[Tensor, "b c h w"]) -> Float[np.ndarray, "b gh gw 3"]:
    """The first three principal components of the patch features as red, green and blue, 0…1 (as DINOv2 shows).

    The components are those of all images together: the same colour means the same thing in each.
    """
    grid = patch_grid(model, images)
    with eval_mode(model):
        tokens = model.forward_features(images)[:, model.config.prefix :].float()
    flat = tokens.flatten(0, 1) - tokens.mean(dim=(0, 1))
    _, _, components = torch.linalg.svd(flat, full_matrices=False)
    kept = components[:3] * components[:3].sum(dim=1, keepdim=True).sign()  # a sign of its own has no component
    shown = flat @ kept.T
    shown = torch.cat([shown, shown.new_zeros(len(shown), 3 - shown.shape[1])], dim=1)
    low, high = shown.quantile(0.01, dim=0), shown.quantile(0.99, dim=0)
    colours = ((shown - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    return rearrange(colours, "(b gh gw) k -> b gh gw k", gh=grid[0], gw=grid[1]).cpu().numpy()


@torch.no_grad()
def token_norms(model: ViT, images: Float[Tensor, "b c h w"]) -> Float[np.ndarray, "b gh gw"]:
    """The length of each patch token after the last block, before the norm: outliers, which registers cure, stand
    out (Darcet et al. 2024)."""
    with eval_mode(model):
        tokens = model.forward_intermediates(images, [-1])[0]
    return to_grid(tokens.float().norm(dim=-1), model, images).cpu().numpy()

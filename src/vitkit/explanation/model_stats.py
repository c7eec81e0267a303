"""Statistics of the model itself: filters, positions and attention distance (figure 7 of the ViT paper), and tokens.

Shapes: b batch, h heads, t tokens, d width, (gh, gw) the grid of patches, (ph, pw) pixels of a patch.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitkit.evaluation.predict import eval_mode
from vitkit.explanation.attention import ROWS_PER_CHUNK, patch_grid, to_grid
from vitkit.explanation.capture import capture_attention
from vitkit.model import ViT
from vitkit.model.attention import attention_weights
from vitkit.model.config import Pair
from vitkit.model.pos_embed import sincos_table


@dataclass(frozen=True)
class PositionSimilarity:
    """Similarity of all pairs of positions: `values[r, c]` is the map of the patch at row r, column c."""

    values: np.ndarray  # (gh, gw, gh, gw)
    description: str

    def sample(self, side: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return at most `side` evenly spaced rows and columns, and their maps (rows, columns, gh, gw)."""
        rows, columns = (
            np.unique(np.linspace(0, n - 1, min(n, side)).round().astype(int)) for n in self.values.shape[:2]
        )
        return rows, columns, self.values[np.ix_(rows, columns)]


@torch.no_grad()
def patch_filters(model: ViT, count: int = 28) -> tuple[Float[np.ndarray, "n ph pw c"], Float[np.ndarray, "n"]]:
    """Return the first principal components of the patch-embedding filters, and each one's share of the variance.

    After a convolutional stem, filters apply to its feature map: the first three channels are kept.
    """
    weight = model.patch_embed.proj.weight.float()
    flat = weight.flatten(1) - weight.flatten(1).mean(dim=0)
    _, scale, components = torch.linalg.svd(flat, full_matrices=False)
    shapes = components[:count].view(-1, *weight.shape[1:])
    share = scale**2 / (scale**2).sum()
    return rearrange(shapes[:, :3], "n c ph pw -> n ph pw c").cpu().numpy(), share[:count].cpu().numpy()


@torch.no_grad()
def position_similarity(model: ViT) -> PositionSimilarity | None:
    """Return the cosine similarity of the position embeddings of all pairs of patches; None without positions.

    Rotary models have no embeddings. The similarity of two positions is then the mean cosine of their angle
    differences: the factor by which the product of a query with an equal key shrinks between them.
    """
    c = model.config
    if model.pos_embed is not None:
        table, description = model.pos_embed[0, model.class_rows :].float(), "Cosine similarity of position embeddings"
    elif c.position == "sincos":
        table, description = sincos_table(c.grid, c.width), "Cosine similarity of the fixed sine-cosine positions"
    elif c.rotates:
        table = torch.cat(model.rope(c.grid), dim=1)
        description = "Mean cosine of the angles between rotary positions"
    else:
        return None
    unit = table / table.norm(dim=1, keepdim=True)
    values = rearrange(unit @ unit.T, "(r c) (gh gw) -> r c gh gw", r=c.grid[0], gh=c.grid[0])
    return PositionSimilarity(values.cpu().numpy(), description)


def attention_distance(model: ViT, images: Float[Tensor, "b c h w"]) -> Float[np.ndarray, "layers heads"]:
    """Return the mean attention distance of each head in pixels: between patches, weighted by attention.

    It is averaged over queries and images. Attention to the class token and registers has no distance and is excluded.
    """
    prefix = model.config.prefix
    distances = patch_distances(patch_grid(model, images), model.config.patch_size).to(images.device)

    def read(q: Tensor, k: Tensor) -> Tensor:
        total = torch.zeros(q.shape[1], device=q.device)
        for start in range(0, len(distances), ROWS_PER_CHUNK):
            rows = slice(prefix + start, prefix + start + ROWS_PER_CHUNK)
            weights = attention_weights(q[:, :, rows], k)[..., prefix:]
            weighted = torch.einsum("bhqt,qt->bhq", weights, distances[start : start + ROWS_PER_CHUNK])
            total += (weighted / weights.sum(dim=-1)).sum(dim=(0, 2))
        return total / (len(q) * len(distances))

    with eval_mode(model):
        found, _ = capture_attention(model, images, read, range(model.config.depth))
    return torch.stack([found[i] for i in range(model.config.depth)]).cpu().numpy()


def patch_distances(grid: Pair, patch: Pair) -> Float[Tensor, "n n"]:
    """Return the distance in pixels between the centres of all pairs of patches."""
    centres = torch.cartesian_prod(*(torch.arange(g) * float(p) for g, p in zip(grid, patch, strict=True)))
    return torch.cdist(centres, centres)


@torch.no_grad()
def feature_pca(model: ViT, images: Float[Tensor, "b c h w"]) -> Float[np.ndarray, "b gh gw 3"]:
    """Return the first three principal components of the patch features as RGB in 0…1, as DINOv2 shows them.

    The components are computed over all images, so that a colour has the same meaning in each.
    """
    with eval_mode(model):
        tokens = model.forward_features(images)[:, model.config.prefix :].float()
    flat = tokens.flatten(0, 1) - tokens.mean(dim=(0, 1))
    _, _, components = torch.linalg.svd(flat, full_matrices=False)
    kept = components[:3] * components[:3].sum(dim=1, keepdim=True).sign()  # the sign of a component is arbitrary
    shown = F.pad(flat @ kept.T, (0, 3 - len(kept)))
    low, high = shown.quantile(shown.new_tensor([0.01, 0.99]), dim=0)
    colours = ((shown - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
    return rearrange(colours, "(b gh gw) k -> b gh gw k", b=len(images), gh=patch_grid(model, images)[0]).cpu().numpy()


@torch.no_grad()
def token_norms(model: ViT, images: Float[Tensor, "b c h w"]) -> Float[np.ndarray, "b gh gw"]:
    """Return the L2 norm of each patch token after the last block, before the final norm.

    It shows the outlier tokens that register tokens remove (Darcet et al. 2024).
    """
    with eval_mode(model):
        tokens = model.forward_intermediates(images, [-1])[0]
    return to_grid(tokens.float().norm(dim=-1), model, images).cpu().numpy()

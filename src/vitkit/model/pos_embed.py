"""Position embeddings: the second half of eq. 1, + E_pos, and two alternatives.

learned  a trained table with one vector per patch, resampled if the grid of patches has another size
sincos   a fixed function of row and column (Beyer et al. 2022, Better plain ViT baselines)
rotary   queries and keys are rotated by angles that grow with row and column (Su et al. 2021). Axial, with coordinates
         in [-1, 1] as in DINOv3, so that another resolution keeps the range seen in training, or counted in patches

Shapes: b batch, h heads, n patches, t all tokens, d width, e head width.
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitkit.model.config import Pair

Rope = tuple[Float[Tensor, "n e"], Float[Tensor, "n e"]]  # cosines and sines of the angles, one row per patch


def resample_table(
    table: Float[Tensor, "n d"], old: Pair, new: Pair, mode: str, antialias: bool = True, offset: float = 0.0
) -> Float[Tensor, "m d"]:
    """Resize the learned table, seen as an image with d channels, to another grid.

    Antialiased by default, as in timm: without it a smaller grid would pick single rows and drop the rest.
    DINOv2 adds an `offset` to the new grid in the scale factor.
    """
    if old == new:
        return table
    picture = rearrange(table, "(gh gw) d -> 1 d gh gw", gh=old[0]).float()  # bicubic in bf16 would lose digits
    if offset:
        scale = [(n + offset) / o for n, o in zip(new, old, strict=True)]
        picture = F.interpolate(picture, scale_factor=scale, mode=mode, antialias=antialias)
    else:
        picture = F.interpolate(picture, size=new, mode=mode, antialias=antialias)
    return rearrange(picture, "1 d gh gw -> (gh gw) d").to(table.dtype)


def sincos_table(grid: Pair, width: int, device: torch.device | None = None) -> Float[Tensor, "n d"]:
    """Return sin(column), cos(column), sin(row), cos(row) at falling frequencies, a quarter of the width each."""
    rows, columns = torch.meshgrid(*(torch.arange(g, device=device) for g in grid), indexing="ij")
    frequencies = 10_000.0 ** -(torch.arange(width // 4, device=device) / (width // 4 - 1))
    x, y = (axis.flatten()[:, None] * frequencies for axis in (columns, rows))
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1)


def axial_rope(
    grid: Pair,
    head_width: int,
    device: torch.device | None = None,
    unit: str = "image",
    base: float = 100.0,
    offset: float = 0.0,
    reference: Pair | None = None,
) -> Rope:
    """Return the rotation of every patch: e/4 frequencies for its row and e/4 for its column, on both head halves.

    The coordinates of a patch are those of its centre in the image, from -1 to 1, or its row and column plus `offset`,
    scaled to the `reference` grid.
    """
    steps = [torch.arange(g, device=device) for g in grid]
    if unit == "image":
        highest, axes = 2 * math.pi, [2 * (i + 0.5) / g - 1 for i, g in zip(steps, grid, strict=True)]
    else:
        highest, axes = 1.0, [(i + offset) / g * r for i, g, r in zip(steps, grid, reference or grid, strict=True)]
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, 1)
    frequencies = highest * base ** -(torch.arange(0, head_width, 4, device=device) / head_width)
    angles = (places[:, :, None] * frequencies).flatten(1).tile(2)
    return angles.cos(), angles.sin()


def apply_rope(x: Float[Tensor, "b h t e"], rope: Rope | None) -> Float[Tensor, "b h t e"]:
    """Rotate the pairs (xᵢ, xᵢ₊ₑ⸝₂) of every patch token. Prefix tokens have no position and stay as they are."""
    if rope is None:
        return x
    cos, sin = (part.to(x.dtype) for part in rope)
    prefix, patches = x[..., : -cos.shape[0], :], x[..., -cos.shape[0] :, :]
    first, second = patches.chunk(2, dim=-1)
    return torch.cat([prefix, patches * cos + torch.cat([-second, first], dim=-1) * sin], dim=-2)

"""The plain baseline: cover a part of the image and see how much less the model believes in the class.

Shapes: b batch, n windows, (gh, gw) the grid of patches.
"""

import itertools

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitkit.errors import InputError
from vitkit.explanation.attention import patch_grid
from vitkit.model import ViT
from vitkit.model.config import Pair

FORWARDS_AT_ONCE = 16


def occlusion(
    model: ViT,
    images: Float[Tensor, "b c h w"],
    target: Tensor | None = None,
    window: int | None = None,
) -> tuple[Float[Tensor, "b gh gw"], Float[Tensor, "b k"]]:
    """For each patch the fall of the class's log-probability, averaged over the windows that cover it.

    A window of `window` × `window` patches, about a fifth of the grid's shorter side by default, is moved over the
    image by half its side and filled with the mean of the normalisation. One forward for each place.
    """
    grid = patch_grid(model, images)
    covered = windows(grid, max(round(min(grid) / 5), 1) if window is None else window).to(images.device)
    with torch.no_grad():
        logits = model(images)
        target = logits.argmax(dim=1) if target is None else target
        maps = []
        for image, of_class, whole in zip(images, target, logits.log_softmax(dim=1), strict=True):
            falls = []
            for start in range(0, len(covered), FORWARDS_AT_ONCE):
                part = covered[start : start + FORWARDS_AT_ONCE]
                hidden = cover(image, part, model.config.patch_size)
                falls.append(whole[of_class] - model(hidden).log_softmax(dim=1)[:, of_class])
            weight = covered.float()
            maps.append(torch.einsum("n,nhw->hw", torch.cat(falls).float(), weight) / weight.sum(dim=0))
    return torch.stack(maps), logits


def windows(grid: Pair, side: int) -> Bool[Tensor, "n gh gw"]:
    """A square of patches, moved by half its side until it meets the far edges."""
    if not 1 <= side <= min(grid):
        raise InputError(f"a window of {side} patches does not fit a grid of {grid[0]}×{grid[1]}: use 1…{min(grid)}")
    rows, columns = ([*range(0, g - side, (side + 1) // 2), g - side] for g in grid)
    masks = torch.zeros(len(rows) * len(columns), *grid, dtype=torch.bool)
    for mask, (row, column) in zip(masks, itertools.product(rows, columns), strict=True):
        mask[row : row + side, column : column + side] = True
    return masks


def cover(
    image: Float[Tensor, "c h w"],
    masks: Bool[Tensor, "n gh gw"],
    patch: Pair,
    by: Float[Tensor, "c h w"] | float = 0.0,
) -> Float[Tensor, "n c h w"]:
    """Copies of the image, the patches of each mask replaced: by 0, the mean of the normalisation, unless told."""
    pixels = masks.repeat_interleave(patch[0], dim=1).repeat_interleave(patch[1], dim=2)[:, None]
    filling = by if isinstance(by, Tensor) else image.new_full((), by)
    return torch.where(pixels, filling, image)

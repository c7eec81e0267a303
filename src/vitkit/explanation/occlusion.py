"""Occlusion (Zeiler & Fergus 2014): mask a part of the image and measure how much the class loses.

Shapes: b batch, n windows, (gh, gw) the grid of patches.
"""

import itertools

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from vitkit.errors import InputError
from vitkit.explanation.attention import patch_grid
from vitkit.model import ViT
from vitkit.model.config import Pair

BATCH_SIZE = 16  # masked copies of one image per forward


def occlusion(
    model: ViT, images: Float[Tensor, "b c h w"], target: Tensor | None = None, window: int | None = None
) -> tuple[Float[Tensor, "b gh gw"], Float[Tensor, "b k"]]:
    """Return the drop of the class's log-probability per patch, averaged over the windows that mask it, and the logits.

    A window of `window` × `window` patches moves over the image by half its side and is filled with the mean of the
    normalisation. Its default side is about a fifth of the grid's shorter side. Each position takes one forward.
    """
    grid = patch_grid(model, images)
    masks = window_masks(grid, max(round(min(grid) / 5), 1) if window is None else window).to(images.device)
    weight = masks.float()
    with torch.no_grad():
        logits = model(images)
        target = logits.argmax(dim=1) if target is None else target
        maps = []
        for image, label, unmasked in zip(images, target, logits.log_softmax(dim=1), strict=True):
            drops = [
                unmasked[label] - model(mask_patches(image, some, model.config.patch_size)).log_softmax(dim=1)[:, label]
                for some in torch.split(masks, BATCH_SIZE)
            ]
            maps.append(torch.einsum("n,nhw->hw", torch.cat(drops).float(), weight) / weight.sum(dim=0))
    return torch.stack(maps), logits


def window_masks(grid: Pair, side: int) -> Bool[Tensor, "n gh gw"]:
    """Return a mask for each position of a square window that moves by half its side up to the far edges."""
    if not 1 <= side <= min(grid):
        raise InputError(f"a window of {side} patches does not fit a grid of {grid[0]}×{grid[1]}: use 1…{min(grid)}")
    rows, columns = ([*range(0, g - side, (side + 1) // 2), g - side] for g in grid)
    masks = torch.zeros(len(rows) * len(columns), *grid, dtype=torch.bool)
    for mask, (row, column) in zip(masks, itertools.product(rows, columns), strict=True):
        mask[row : row + side, column : column + side] = True
    return masks


def mask_patches(
    image: Float[Tensor, "c h w"],
    masks: Bool[Tensor, "n gh gw"],
    patch: Pair,
    fill: Float[Tensor, "c h w"] | None = None,
) -> Float[Tensor, "n c h w"]:
    """Return one copy of the image per mask, its patches replaced by `fill`, or by 0, the mean of the normalisation."""
    pixels = masks.repeat_interleave(patch[0], dim=1).repeat_interleave(patch[1], dim=2)[:, None]
    below, right = image.shape[1] - pixels.shape[2], image.shape[2] - pixels.shape[3]  # beyond the last patch
    pixels = F.pad(pixels, (0, right, 0, below))
    return torch.where(pixels, image.new_zeros(()) if fill is None else fill, image)

"""Bad input is met at the door, with one line that says what came, what was expected and what to do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitkit.errors import InputError

if TYPE_CHECKING:
    from vitkit.model.vit import ViT


def check_images(images: Tensor, model: "ViT") -> None:
    """Shape, channels, size, dtype and, where that is cheap, values."""
    config, weight = model.config, model.patch_embed.proj.weight
    if images.ndim != 4:
        raise InputError(f"images have shape {tuple(images.shape)}: expected (batch, channels, height, width)")
    if images.shape[1] != config.in_channels:
        raise InputError(
            f"images have {images.shape[1]} channels (shape {tuple(images.shape)}), the model takes "
            f"{config.in_channels}: convert them, or create the model with in_channels={images.shape[1]}"
        )
    for side, pixels, patch in zip(("height", "width"), images.shape[2:], config.patch_size, strict=True):
        if pixels % patch or pixels < patch:
            near = max(round(pixels / patch), 1) * patch
            raise InputError(f"image {side} {pixels} is not a multiple of the patch {side} {patch}: resize to {near}")
    if not images.is_floating_point():
        raise InputError(f"images are {images.dtype}: scale to 0…1 and normalise first, as vitkit's preprocessing does")
    if images.dtype != weight.dtype and not torch.is_autocast_enabled(images.device.type):
        raise InputError(f"images are {images.dtype}, the model {weight.dtype}: use images.to({weight.dtype})")
    # Looking at values would break a compiled graph and stall a GPU; there, NaN shows in the loss instead.
    if images.device.type == "cpu" and not torch.compiler.is_compiling() and not images.isfinite().all():
        bad = int((~images.isfinite()).flatten(1).any(dim=1).nonzero()[0])
        raise InputError(f"image {bad} of the batch has NaN or infinite pixels: look at how it was read or normalised")


def resolve_indices(kind: str, wanted: Sequence[int] | None, count: int) -> list[int]:
    """Indices as asked for, -1 being the last; all of them by default."""
    if wanted is None:
        return list(range(count))
    if not wanted:
        raise InputError(f"no {kind} asked for: give at least one of 0…{count - 1}, or None for all")
    for i in wanted:
        if not -count <= i < count:
            raise InputError(f"{kind} {i} is out of range: there are {count}, 0…{count - 1}, or -1 for the last")
    return [i % count for i in wanted]

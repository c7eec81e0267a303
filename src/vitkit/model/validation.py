"""Checks of what callers pass to a model. Each error says what came, what was expected and what to do."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitkit.errors import InputError
from vitkit.model.config import ViTConfig


def check_images(images: Tensor, config: ViTConfig, dtype: torch.dtype) -> None:
    """Raise InputError unless a model of this config and dtype accepts the batch."""
    if images.ndim != 4:
        raise InputError(f"images have shape {tuple(images.shape)}: expected (batch, channels, height, width)")
    if images.shape[1] != config.in_channels:
        raise InputError(
            f"images have {images.shape[1]} channels (shape {tuple(images.shape)}), the model takes "
            f"{config.in_channels}: convert them, or create the model with in_channels={images.shape[1]}"
        )
    for side, pixels, patch in zip(("height", "width"), images.shape[2:], config.patch_size, strict=True):
        if pixels < patch or (pixels % patch and not config.drop_remainder):
            near = max(round(pixels / patch), 1) * patch
            raise InputError(f"image {side} {pixels} is not a multiple of the patch {side} {patch}: resize to {near}")
    if not images.is_floating_point():
        raise InputError(f"images are {images.dtype}: scale to 0…1 and normalise first, as vitkit's preprocessing does")
    if images.dtype != dtype and not torch.is_autocast_enabled(images.device.type):
        raise InputError(f"images are {images.dtype}, the model {dtype}: use images.to({dtype})")
    # Reading values would break a compiled graph and stall a GPU; there, NaN shows in the loss instead.
    if images.device.type == "cpu" and not torch.compiler.is_compiling() and not images.isfinite().all():
        bad = int((~images.isfinite()).flatten(1).any(dim=1).nonzero()[0])
        raise InputError(f"image {bad} of the batch has NaN or infinite pixels: check how it was read or normalised")


def resolve_indices(kind: str, indices: int | Sequence[int] | None, count: int) -> list[int]:
    """Return an index or several as non-negative numbers below `count`; all of them for None. -1 is the last."""
    if indices is None:
        return list(range(count))
    if isinstance(indices, int):
        indices = [indices]
    if not indices:
        raise InputError(f"no {kind} requested: give at least one of 0…{count - 1}, or None for all")
    for i in indices:
        if not -count <= i < count:
            raise InputError(f"{kind} {i} is out of range: use 0…{count - 1}, or -1 for the last")
    return [i % count for i in indices]

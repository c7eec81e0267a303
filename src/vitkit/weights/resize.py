"""Adapt weights to another image size, patch size, number of channels or number of classes."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitkit.errors import ConfigError, WeightsError
from vitkit.model import ModelInfo, ViT, ViTConfig
from vitkit.model.config import Pair
from vitkit.model.pos_embed import resample_table
from vitkit.weights.state_dict import State, build_model

Side = int | Pair


def adapt_model(
    model: ViT,
    image_size: Side | None = None,
    patch_size: Side | None = None,
    in_channels: int | None = None,
    num_classes: int | None = None,
) -> tuple[ViT, list[str]]:
    """Return the adapted model and a line per change; without changes, the given model and an empty list."""
    info = model.info
    old, state = model.config, dict(model.state_dict())
    requested = {"image_size": image_size, "patch_size": patch_size, "in_channels": in_channels}
    try:
        new = old.replace(**{name: value for name, value in requested.items() if value is not None})
    except ConfigError as error:
        raise WeightsError(f"the weights cannot be adapted: {error}") from error
    changes: list[str] = []
    if new.patch_size != old.patch_size:
        changes.append(_resize_patches(state, old, new))
    if new.in_channels != old.in_channels:
        info, line = _change_channels(state, old, new, info)
        changes.append(line)
    if new.grid != old.grid and "pos_embed" in state:
        changes.append(_resample_positions(state, old, new))
    if new.image_size != old.image_size:
        changes.append(f"image size {_by(old.image_size)} → {_by(new.image_size)}")
        if info.preprocess is not None:
            info = info.replace(preprocess=info.preprocess.replace(size=new.image_size))
    if changes:
        model, _ = build_model(new, state, "the adapted model", model_class=type(model))
    model.info = info
    if num_classes is not None and num_classes != old.num_classes:
        changes.append(_reset_classes(model, num_classes))
    return model, changes


def _resize_patches(state: State, old: ViTConfig, new: ViTConfig) -> str:
    if old.stem:
        raise WeightsError("the patch size of a model with a convolutional stem cannot be changed")
    weight = state["patch_embed.proj.weight"]
    state["patch_embed.proj.weight"] = resize_projection(weight, new.patch_size)
    return f"patches {_by(old.patch_size)} → {_by(new.patch_size)}: projection resized by pseudo-inverse (FlexiViT)"


def resize_projection(weight: Tensor, patch: Pair) -> Tensor:
    """Return the projection E' that maps a resized patch to the token of the original patch, or closest to it.

    Resizing a patch is a linear map, x' = Bx. E' x' = E x for every x needs E' B = E: E' = E B⁺ (Beyer et al. 2023).
    """
    old = tuple(weight.shape[2:])
    pixels = torch.eye(old[0] * old[1], dtype=torch.float64).reshape(-1, 1, *old)
    resized = F.interpolate(pixels, size=patch, mode="bicubic", antialias=True).flatten(1)  # Bᵀ: a row per old pixel
    inverse = torch.linalg.pinv(resized.mT)
    return (weight.double().flatten(2) @ inverse).reshape(*weight.shape[:2], *patch).to(weight.dtype)


def _change_channels(state: State, old: ViTConfig, new: ViTConfig, info: ModelInfo) -> tuple[ModelInfo, str]:
    if old.stem:
        raise WeightsError("the channels of a model with a convolutional stem cannot be changed")
    weight, preprocess = state["patch_embed.proj.weight"], info.preprocess
    count = new.in_channels
    mean, std = (
        (preprocess.mean, preprocess.std) if preprocess else ((0.0,) * old.in_channels, (1.0,) * old.in_channels)
    )
    if count == 1:
        # A grey image has equal channels: the sum of the filters gives the same tokens, after the means and deviations
        # of the channels are folded into weight and bias.
        grey, grey_std = sum(mean) / len(mean), sum(std) / len(std)
        scale = _per_channel([grey_std / s for s in std], weight)
        shift = _per_channel([(grey - m) / s for m, s in zip(mean, std, strict=True)], weight)
        state["patch_embed.proj.bias"] = state["patch_embed.proj.bias"] + (weight * shift).sum(dim=(1, 2, 3))
        state["patch_embed.proj.weight"] = (weight * scale).sum(dim=1, keepdim=True)
        mean, std, how = (grey,), (grey_std,), "filters summed; a grey image gives the same tokens"
    else:
        source = [i % old.in_channels for i in range(count)]
        state["patch_embed.proj.weight"] = weight[:, source] * (old.in_channels / count)
        mean, std = tuple(mean[i] for i in source), tuple(std[i] for i in source)
        how = "filters repeated cyclically, scaled to keep the sum"
    if preprocess is not None:
        values = {**preprocess.to_dict(), "channels": count, "mean": mean, "std": std, "fill": None}
        info = info.replace(preprocess=type(preprocess).from_dict(values))
    return info, f"channels {old.in_channels} → {count}: {how}"


def _per_channel(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype)[None, :, None, None]


def _resample_positions(state: State, old: ViTConfig, new: ViTConfig) -> str:
    table = state["pos_embed"]
    prefix = table.shape[1] - old.grid[0] * old.grid[1]
    resampled = resample_table(
        table[0, prefix:], old.grid, new.grid, old.position_resample, old.position_antialias, old.position_offset
    )
    state["pos_embed"] = torch.cat([table[:, :prefix], resampled[None]], dim=1)
    return f"position table {_by(old.grid)} → {_by(new.grid)}: {old.position_resample}"


def _reset_classes(model: ViT, num_classes: int) -> str:
    old = model.config
    model.reset_classifier(num_classes)
    hidden = f"; hidden layer of {old.head_hidden} dropped" if old.head_hidden else ""
    return f"classes {old.num_classes} → {num_classes}: new zero-initialised head{hidden}"


def _by(pair: Pair) -> str:
    return f"{pair[0]}×{pair[1]}"

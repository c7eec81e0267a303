"""Weights for another image size, patch size, number of channels or number of classes than they were trained with."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitkit.errors import ConfigError, WeightsError
from vitkit.model import ModelInfo, ViT, ViTConfig
from vitkit.model.config import Pair
from vitkit.model.pos_embed import resample_table
from vitkit.weights.state_dict import build

State = dict[str, Tensor]
Side = int | Pair


def adapt(
    model: ViT,
    image_size: Side | None = None,
    patch_size: Side | None = None,
    in_channels: int | None = None,
    num_classes: int | None = None,
) -> tuple[ViT, list[str]]:
    """The adapted model, and a line for everything that was changed; the same model where nothing was."""
    info = model.info
    old, state = model.config, dict(model.state_dict())
    asked = {"image_size": image_size, "patch_size": patch_size, "in_channels": in_channels}
    try:
        new = old.replace(**{name: value for name, value in asked.items() if value is not None})
    except ConfigError as error:
        raise WeightsError(f"these weights cannot be adapted: {error}") from error
    said: list[str] = []
    if new.patch_size != old.patch_size:
        said.append(_patches(state, old, new))
    if new.in_channels != old.in_channels:
        info, line = _channels(state, old, new, info)
        said.append(line)
    if new.grid != old.grid and "pos_embed" in state:
        said.append(_positions(state, old, new))
    if new.image_size != old.image_size:
        said.append(f"image size {_by(old.image_size)} → {_by(new.image_size)}")
        if info.preprocess is not None:
            info = info.replace(preprocess=info.preprocess.replace(size=new.image_size))
    if said:
        model = build(new, state, "the adapted model")
    model.info = info
    if num_classes is not None and num_classes != old.num_classes:
        said.append(_classes(model, num_classes))
    return model, said


def _patches(state: State, old: ViTConfig, new: ViTConfig) -> str:
    if old.stem:
        raise WeightsError("a model with a convolutional stem has no patch projection to resize: keep its patch_size")
    weight = state["patch_embed.proj.weight"]
    state["patch_embed.proj.weight"] = resize_projection(weight, new.patch_size)
    return f"patches {_by(old.patch_size)} → {_by(new.patch_size)}: projection resized by pseudo-inverse, as FlexiViT"


def resize_projection(weight: Tensor, patch: Pair) -> Tensor:
    """The projection E' for which a resized patch gives the token of the original, or comes nearest to it.

    Resizing a patch is a linear map, x' = Bx. E' x' = E x for every x needs E' B = E: E' = E B⁺ (Beyer et al. 2023).
    """
    old = tuple(weight.shape[2:])
    pixels = torch.eye(old[0] * old[1], dtype=torch.float64).reshape(-1, 1, *old)
    resized = F.interpolate(pixels, size=patch, mode="bicubic", antialias=True).flatten(1)  # Bᵀ: a row per old pixel
    inverse = torch.linalg.pinv(resized.mT)
    return (weight.double().flatten(2) @ inverse).reshape(*weight.shape[:2], *patch).to(weight.dtype)


def _channels(state: State, old: ViTConfig, new: ViTConfig, info: ModelInfo) -> tuple[ModelInfo, str]:
    if old.stem:
        raise WeightsError("a model with a convolutional stem cannot take another number of channels")
    weight, seen = state["patch_embed.proj.weight"], info.preprocess
    count = new.in_channels
    mean, std = (seen.mean, seen.std) if seen else ((0.0,) * old.in_channels, (1.0,) * old.in_channels)
    if count == 1:
        # A grey image is one whose channels are equal: the sum of the filters gives the same tokens, once the
        # channels' own means and deviations are taken into weight and bias.
        grey, spread = sum(mean) / len(mean), sum(std) / len(std)
        scale = _per_channel([spread / s for s in std], weight)
        shift = _per_channel([(grey - m) / s for m, s in zip(mean, std, strict=True)], weight)
        state["patch_embed.proj.bias"] = state["patch_embed.proj.bias"] + (weight * shift).sum(dim=(1, 2, 3))
        state["patch_embed.proj.weight"] = (weight * scale).sum(dim=1, keepdim=True)
        mean, std, how = (grey,), (spread,), "filters summed, so that a grey image gives the same tokens"
    else:
        picked = [i % old.in_channels for i in range(count)]
        state["patch_embed.proj.weight"] = weight[:, picked] * (old.in_channels / count)
        mean, std = tuple(mean[i] for i in picked), tuple(std[i] for i in picked)
        how = "filters repeated in turn, scaled to keep the sum"
    if seen is not None:
        values = {**seen.to_dict(), "channels": count, "mean": mean, "std": std, "fill": None}
        info = info.replace(preprocess=type(seen).from_dict(values))
    return info, f"channels {old.in_channels} → {count}: {how}"


def _per_channel(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype)[None, :, None, None]


def _positions(state: State, old: ViTConfig, new: ViTConfig) -> str:
    table = state["pos_embed"]
    prefix = table.shape[1] - old.grid[0] * old.grid[1]
    resampled = resample_table(table[0, prefix:], old.grid, new.grid, old.position_resample)
    state["pos_embed"] = torch.cat([table[:, :prefix], resampled[None]], dim=1)
    return f"position table {_by(old.grid)} → {_by(new.grid)}: {old.position_resample}"


def _classes(model: ViT, num_classes: int) -> str:
    old = model.config
    model.reset_classifier(num_classes)
    hidden = f", its hidden layer of {old.head_hidden} dropped" if old.head_hidden else ""
    return f"classes {old.num_classes} → {num_classes}: a new head of zeros{hidden}"


def _by(pair: Pair) -> str:
    return f"{pair[0]}×{pair[1]}"

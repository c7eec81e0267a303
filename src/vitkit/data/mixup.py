"""Mixup (Zhang et al. 2018) and cutmix (Yun et al. 2019): two images become two mixtures, and so do their labels.

Partners are neighbours: rows 2i and 2i + 1 of the batch take from each other, and the first of them draws for both. So
any slice of a batch from an even row to an even row mixes by itself, and ranks need not know of each other.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitkit.data.rng import SampleKeys
from vitkit.data.transforms import Augment


def mixup_cutmix(
    images: Float[Tensor, "b c h w"], targets: Float[Tensor, "b k"], keys: SampleKeys, settings: Augment
) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b k"]]:
    """Where both are on, half of the pairs get each. An odd last row stays as it is."""
    pairs = len(images) // 2
    if not pairs or not (settings.mixup or settings.cutmix):
        return images, targets
    kept, share = _kept(keys[0 : 2 * pairs : 2], settings, *images.shape[-2:])
    return _blend(images, torch.from_numpy(kept)[:, None, None]), _blend(
        targets, torch.from_numpy(share)[:, None, None]
    )


def _blend(rows: Tensor, kept: Tensor) -> Tensor:
    """Each of a pair keeps `kept` of itself and takes the rest from the other."""
    pairs = rows[: 2 * len(kept)].view(len(kept), 2, *rows.shape[1:])
    mixed = torch.lerp(pairs.flip(1), pairs, kept.to(rows)).flatten(0, 1)
    return torch.cat([mixed, rows[len(mixed) :]])


def _kept(keys: SampleKeys, settings: Augment, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """How much of itself an image keeps: at each pixel, (B, H, W) or (B, 1, 1), and in all, (B,)."""
    level = beta_quantile(settings.mixup, keys.uniform("mixup")) if settings.mixup else np.ones(len(keys))
    if not settings.cutmix:
        return level[:, None, None], level
    outside = ~_rectangle(keys, beta_quantile(settings.cutmix, keys.uniform("cutmix")), height, width)
    cut = keys.uniform("mix") < 0.5 if settings.mixup else np.ones(len(keys), dtype=bool)
    return np.where(cut[:, None, None], outside, level[:, None, None]), np.where(cut, outside.mean((1, 2)), level)


def _rectangle(keys: SampleKeys, level: np.ndarray, height: int, width: int) -> np.ndarray:
    """(B, H, W): a rectangle of the image's shape and 1 - level of its area, anywhere; the border may cut it off.

    What the label gets is counted after that, in pixels.
    """
    inside = []
    for size, centre in zip((height, width), keys.uniform("cutmix centre", 2).T, strict=True):
        length, place = np.rint(size * np.sqrt(1 - level)), np.floor(size * centre)
        start = place - length // 2
        at = np.arange(size)
        inside.append((at >= start[:, None]) & (at < (start + length)[:, None]))
    down, across = inside
    return down[:, :, None] & across[:, None, :]


def beta_quantile(alpha: float, uniform: np.ndarray) -> np.ndarray:
    """Numbers of the distribution Beta(alpha, alpha), from uniform ones: its inverse distribution function.

    A sampler by rejection would use an unknown number of draws; this one takes one. The halves mirror each other.
    """
    chance, power = _lower_half(alpha)
    lower = np.interp(np.minimum(uniform, 1 - uniform), chance, power) ** (1 / min(alpha, 1.0))
    return np.where(uniform < 0.5, lower, 1 - lower)


@lru_cache(maxsize=8)
def _lower_half(alpha: float, points: int = 4097) -> tuple[np.ndarray, np.ndarray]:
    """The distribution function of t in 0…½ at even steps of s = tᵖ, p = min(alpha, 1).

    The density t^(α-1) (1 - t)^(α-1) has a pole at 0 for α < 1; in terms of s it is (1 - t)^(α-1), which is tame.
    """
    p = min(alpha, 1.0)
    s = np.linspace(0, 0.5**p, points)
    t = s ** (1 / p)
    density = t ** (alpha - p) * (1 - t) ** (alpha - 1)
    chance = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return chance * (0.5 / chance[-1]), s

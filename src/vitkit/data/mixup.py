"""Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019): blend pairs of images and their labels.

Rows 2i and 2i + 1 of the batch are mixed with each other, with the draws of row 2i. So any slice between even rows can
be mixed on its own, and ranks need no communication.
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
    """Return mixed images and targets. If both methods are on, each gets half of the pairs. An odd last row is kept."""
    pairs = len(images) // 2
    if not pairs or not (settings.mixup or settings.cutmix):
        return images, targets
    shares = _kept_shares(keys[0 : 2 * pairs : 2], settings, *images.shape[-2:])
    of_pixels, of_targets = (torch.from_numpy(share)[:, None, None] for share in shares)
    return _blend(images, of_pixels), _blend(targets, of_targets)


def _blend(rows: Tensor, kept: Tensor) -> Tensor:
    """Blend each row with its partner: `kept` is the share of the row itself."""
    pairs = rows[: 2 * len(kept)].view(len(kept), 2, *rows.shape[1:])
    mixed = torch.lerp(pairs.flip(1), pairs, kept.to(rows)).flatten(0, 1)
    return torch.cat([mixed, rows[len(mixed) :]])


def _kept_shares(keys: SampleKeys, settings: Augment, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the share that an image keeps of itself: per pixel, (B, H, W) or (B, 1, 1), and in total, (B,)."""
    lam = beta_quantile(settings.mixup, keys.uniform("mixup")) if settings.mixup else np.ones(len(keys))
    if not settings.cutmix:
        return lam[:, None, None], lam
    outside = ~_rectangle(keys, beta_quantile(settings.cutmix, keys.uniform("cutmix")), height, width)
    cut = keys.uniform("mix") < 0.5 if settings.mixup else np.ones(len(keys), dtype=bool)
    return np.where(cut[:, None, None], outside, lam[:, None, None]), np.where(cut, outside.mean((1, 2)), lam)


def _rectangle(keys: SampleKeys, lam: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return (B, H, W) bool: a rectangle of the image's shape with 1 - λ of its area, at a random centre.

    It is clipped at the border. The weights of the labels count the remaining pixels.
    """
    inside = []
    for size, centre in zip((height, width), keys.uniform("cutmix centre", 2).T, strict=True):
        length, place = np.rint(size * np.sqrt(1 - lam)), np.floor(size * centre)
        start = place - length // 2
        at = np.arange(size)
        inside.append((at >= start[:, None]) & (at < (start + length)[:, None]))
    down, across = inside
    return down[:, :, None] & across[:, None, :]


def beta_quantile(alpha: float, uniform: np.ndarray) -> np.ndarray:
    """Return the quantile function of Beta(alpha, alpha) at `uniform`, which turns uniform draws into Beta draws.

    Rejection sampling would need an unknown number of draws, this needs one. The distribution is symmetric.
    """
    cdf, power = _lower_half(alpha)
    lower = np.interp(np.minimum(uniform, 1 - uniform), cdf, power) ** (1 / min(alpha, 1.0))
    return np.where(uniform < 0.5, lower, 1 - lower)


@lru_cache(maxsize=8)
def _lower_half(alpha: float, points: int = 4097) -> tuple[np.ndarray, np.ndarray]:
    """Return the distribution function of t in 0…½ at even steps of s = tᵖ, p = min(alpha, 1), and s.

    The density t^(α-1) (1 - t)^(α-1) has a pole at 0 for α < 1. As a function of s it is (1 - t)^(α-1): bounded.
    """
    p = min(alpha, 1.0)
    s = np.linspace(0, 0.5**p, points)
    t = s ** (1 / p)
    density = t ** (alpha - p) * (1 - t) ** (alpha - 1)
    cdf = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return cdf * (0.5 / cdf[-1]), s

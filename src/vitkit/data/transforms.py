"""Augment batches of training images. Every random choice is a pure function of the sample's keys (`rng.py`).

Images stay uint8 on their device. The result for one image does not depend on the others in the batch.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from vitkit.config import check_types
from vitkit.data.randaugment import (
    MAX_MAGNITUDE,
    Images,
    brightness,
    color,
    contrast,
    randaugment,
    trivial_augment,
    warp,
)
from vitkit.data.rng import SampleKeys
from vitkit.errors import ConfigError

Range = tuple[float, float]

ERASE_AREA, ERASE_RATIO = (0.02, 0.33), (0.3, 3.3)  # Zhong et al. 2020, table 1


@dataclass(frozen=True)
class Augment:
    """Augmentation settings, in the order of application. The defaults suit small photographs."""

    crop: Literal["none", "pad", "resized"] = "pad"
    padding: float = 0.125  # on every side, as a share of the image size, for crop="pad"
    scale: tuple[float, float] = (0.35, 1.0)  # share of the area kept, for crop="resized"
    ratio: tuple[float, float] = (0.75, 4 / 3)  # width / height, for crop="resized"
    flip: bool = True  # mirror half of the images
    policy: Literal["none", "randaugment", "trivial"] = "none"
    policy_ops: int = 2  # randaugment: number of operations
    policy_magnitude: float = 9.0  # randaugment: 0 to 30
    jitter: float = 0.0  # largest relative change of brightness, contrast and saturation
    erase: float = 0.0  # probability of erasing a rectangle
    mixup: float = 0.0  # alpha of the Beta distribution; 0: off
    cutmix: float = 0.0  # alpha of the Beta distribution; 0: off
    repeats: int = 1  # repeated augmentation: views of each sample per batch

    def __post_init__(self) -> None:
        check_types(self)
        for name, (low, high) in _LIMITS.items():
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"augment.{name}={getattr(self, name)}: must be in {low:g} … {high:g}")
        for name, limit in (("scale", 1.0), ("ratio", np.inf)):
            low, high = getattr(self, name)
            if not 0 < low <= high <= limit:
                raise ConfigError(f"augment.{name}=({low}, {high}): expected 0 < low ≤ high ≤ {limit:g}")


_LIMITS: dict[str, Range] = {
    **dict.fromkeys(("padding", "jitter", "erase"), (0, 1)),
    **dict(policy_ops=(0, 14), policy_magnitude=(0, MAX_MAGNITUDE), mixup=(0, 1000), cutmix=(0, 1000)),
    "repeats": (1, 1000),
}


def augment(images: Images, keys: SampleKeys, settings: Augment, geometry_done: bool = False) -> Images:
    """Return the augmented batch. `geometry_done`: crop and flip were applied on decoding."""
    if not geometry_done:
        images = _crop(images, keys, settings)
        images = _flip(images, keys) if settings.flip else images
    if settings.policy == "randaugment":
        images = randaugment(images, keys, settings.policy_ops, settings.policy_magnitude)
    if settings.policy == "trivial":
        images = trivial_augment(images, keys)
    if settings.jitter:
        images = _jitter(images, keys, settings.jitter)
    return _erase(images, keys, settings.erase) if settings.erase else images


def draw_flips(keys: SampleKeys) -> np.ndarray:
    """Return (B,) bool: which images are mirrored."""
    return keys.uniform("flip") < 0.5


def draw_crop_boxes(keys: SampleKeys, settings: Augment, widths: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return (B, 4): left, top, right, bottom of the random-resized crop, as fractions of the image."""
    return _box(keys.uniform("crop", 4), settings.scale, settings.ratio, widths / heights)


def _box(draws: np.ndarray, scale: Range, ratio: Range, shape: np.ndarray) -> np.ndarray:
    """Return rectangles with area uniform in `scale` and width / height log-uniform in `ratio`.

    `shape` is width / height of the images. The ratio is drawn from those that fit the area, instead of by rejection.
    If none fits because the image is too long, the nearest ratio is used with the largest area that fits.
    """
    area = scale[0] + (scale[1] - scale[0]) * draws[:, 0]
    low, high = (np.log(np.clip(limit, *ratio)) for limit in (area * shape, shape / area))
    stretch = np.exp(low + (high - low) * draws[:, 1]) / shape  # width / height in fractions of the image
    area = np.minimum(area, np.minimum(stretch, 1 / stretch))
    size = np.sqrt(np.stack([area * stretch, area / stretch], axis=1)).clip(max=1)
    start = (1 - size) * draws[:, 2:]
    return np.concatenate([start, start + size], axis=1)


def _crop(images: Images, keys: SampleKeys, settings: Augment) -> Images:
    height, width = images.shape[-2:]
    if settings.crop == "pad":
        return _pad_crop(images, keys, round(settings.padding * height), round(settings.padding * width))
    if settings.crop == "resized":
        size = np.array([width, height], dtype=np.float64)
        box = draw_crop_boxes(keys, settings, *size[:, None])
        (a, e), (c, f) = (box[:, 2:] - box[:, :2]).T, (box[:, :2] * size).T
        zero = np.zeros_like(a)
        matrix = np.stack([a, zero, c, zero, e, f], axis=1)
        return warp(images, torch.from_numpy(matrix).float().to(images.device), outside="border")
    return images


def _pad_crop(images: Images, keys: SampleKeys, pad_y: int, pad_x: int) -> Images:
    """Pad with black, then crop a window of the original size at a random integer offset.

    Each row of the result is contiguous in the padded pixels, so selecting runs of pixels selects the window.
    """
    batch, channels, height, width = images.shape
    padded = F.pad(images, (pad_x, pad_x, pad_y, pad_y))
    offset = (keys.uniform("crop", 2) * (2 * pad_y + 1, 2 * pad_x + 1)).astype(np.int64)
    top, left = torch.from_numpy(offset).to(images.device).T[:, :, None]
    first = torch.arange(batch * channels, device=images.device).view(batch, channels) * padded.shape[2] + top
    start = (first[:, :, None] + torch.arange(height, device=images.device)) * padded.shape[3] + left[:, :, None]
    runs = padded.flatten().unfold(0, width, 1)
    return runs.index_select(0, start.flatten()).view_as(images)


def _flip(images: Images, keys: SampleKeys) -> Images:
    rows = np.arange(len(keys)) + len(keys) * draw_flips(keys)
    return torch.cat([images, images.flip(-1)]).index_select(0, torch.from_numpy(rows).to(images.device))


def _jitter(images: Images, keys: SampleKeys, max_change: float) -> Images:
    draws = max_change * (2 * keys.uniform("jitter", 3) - 1)
    amounts = torch.from_numpy(draws).float().to(images.device).unbind(1)
    for operation, amount in zip((brightness, contrast, color), amounts, strict=True):
        images = operation(images, amount)
    return images


def _erase(images: Images, keys: SampleKeys, probability: float) -> Images:
    """Fill a rectangle with uniform noise per pixel and channel: the best of the paper's four fillings."""
    rows = np.flatnonzero(keys.uniform("erase") < probability)
    if not len(rows):
        return images
    batch, (height, width) = keys[rows], images.shape[-2:]
    shape = np.full(len(rows), width / height)
    box = _box(batch.uniform("erase box", 4), ERASE_AREA, ERASE_RATIO, shape)
    edges = np.rint(box * (width, height, width, height))[:, :, None]
    inside_x = (np.arange(width) >= edges[:, 0]) & (np.arange(width) < edges[:, 2])
    inside_y = (np.arange(height) >= edges[:, 1]) & (np.arange(height) < edges[:, 3])
    erased = torch.from_numpy(inside_y[:, None, :, None] & inside_x[:, None, None, :]).to(images.device)
    noise = torch.from_numpy(_noise(batch, images[0].numel())).to(images.device).view(-1, *images.shape[1:])
    index = torch.from_numpy(rows).to(images.device)
    return images.index_copy(0, index, torch.where(erased, noise, images.index_select(0, index)))


def _noise(keys: SampleKeys, count: int) -> np.ndarray:
    """Return (B, count) random bytes. Each draw has 53 bits and gives six bytes, because draws are expensive."""
    draws = (keys.uniform("erase noise", -(-count // 6)) * 2.0**48).astype("<u8")
    return draws[:, :, None].view(np.uint8)[:, :, :6].reshape(len(keys), -1)[:, :count]

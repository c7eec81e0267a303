"""Decode, resize, crop and normalize images, with settings that are stored with the model.

Pixels stay uint8 until the batch is on the device, where `normalize` runs. Pillow resizes 8-bit values with
antialiasing. Sizes are rounded as in timm's evaluation transform, so published weights get the pixels that they were
evaluated with.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitkit import config as settings
from vitkit.data.decode import MAX_PIXELS, DecodableImage, decode
from vitkit.errors import ConfigError, CorruptImageError, UnknownNameError

Box = tuple[float, float, float, float]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of most published weights

INTERPOLATIONS = {filter_.name.lower(): filter_ for filter_ in Image.Resampling}


@dataclass(frozen=True)
class Preprocess:
    """Settings from an image file to the input of a model. The defaults suit photographs at 224 pixels.

    `fit` decides how an image of another shape is fitted to `size`:
    crop    resize the shorter side to size / crop_fraction, then crop the centre: edges are lost
    squash  resize both sides to size / crop_fraction, then crop the centre: the aspect ratio is lost
    pad     resize the longer side to size / crop_fraction, then fill the rest: with 1.0 nothing is lost
    """

    size: tuple[int, int] = (224, 224)  # (height, width)
    channels: int = 3
    fit: Literal["crop", "squash", "pad"] = "crop"
    crop_fraction: float = 0.875  # 1.0 suits small images
    interpolation: str = "bicubic"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)  # per channel, of values in 0…1
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    fill: tuple[int, ...] | None = None  # colour for fit="pad"; None: the mean
    range: tuple[float, float] | None = None  # values that become black and white above 8 bits; None: the format's

    def __post_init__(self) -> None:
        for name, count in (("size", 2), ("mean", self.channels), ("std", self.channels), ("fill", self.channels)):
            object.__setattr__(self, name, _repeat(getattr(self, name), count))
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as stored. `range` is there only if set: versions that do not know it refuse the file."""
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in settings.to_dict(self).items()}
        return {key: value for key, value in values.items() if key != "range" or value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return settings.from_dict(cls, values)

    def replace(self, **changes: Any) -> Self:
        return type(self).from_dict({**self.to_dict(), **changes})

    def __call__(self, encoded: DecodableImage, name: str | None = None, max_pixels: int = MAX_PIXELS) -> Tensor:
        """Return the preprocessed image as a (C, H, W) uint8 tensor."""
        return torch.from_numpy(self.array(encoded, name, max_pixels)).permute(2, 0, 1).contiguous()

    def batch(self, images: Iterable[DecodableImage]) -> Tensor:
        """Return the preprocessed images as a (B, C, H, W) uint8 tensor."""
        return torch.stack([self(image) for image in images])

    def array(self, encoded: DecodableImage, name: str | None = None, max_pixels: int = MAX_PIXELS) -> np.ndarray:
        """Decode, resize and crop to (H, W, C) uint8."""
        if self.channels in (1, 3):
            return self.resize_and_crop(self.decode(encoded, name, max_pixels))
        # Images with other numbers of channels are arrays. Pillow resizes each channel on its own.
        pixels = encoded if isinstance(encoded, np.ndarray) else None
        if pixels is None or pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != self.channels:
            name = name or (str(encoded) if isinstance(encoded, Path) else "image")
            raise CorruptImageError(name, f"is not a uint8 array (H, W, {self.channels}), as this preprocessing needs")
        planes = [Image.fromarray(np.ascontiguousarray(pixels[..., c])) for c in range(self.channels)]
        return np.concatenate([self._fit(p, self._fill[c : c + 1]) for c, p in enumerate(planes)], axis=2)

    def decode(
        self,
        encoded: DecodableImage,
        name: str | None = None,
        max_pixels: int = MAX_PIXELS,
        min_size: tuple[int, int] | None = None,
    ) -> Image.Image:
        """Return the decoded image in its original size, with the channels and the value range of these settings."""
        return decode(
            encoded, channels=self.channels, min_size=min_size, name=name, max_pixels=max_pixels, value_range=self.range
        )

    def check_decodable(self, encoded: DecodableImage, name: str | None = None) -> None:
        """Raise `CorruptImageError` if `array` would, at less cost.

        A JPEG is decoded at 1/8: every byte is read and checked, but few pixels are computed.
        """
        if isinstance(encoded, np.ndarray) or self.channels not in (1, 3):
            self.array(encoded, name)
        else:
            self.decode(encoded, name, min_size=(1, 1))

    def resize_and_crop(self, image: Image.Image) -> np.ndarray:
        """Resize and crop a decoded image to (H, W, C) uint8."""
        return self._fit(image, self._fill)

    def random_resized_crop(self, image: Image.Image, box: Box, flip: bool = False) -> np.ndarray:
        """Crop `box` (left, top, right, bottom as fractions of the image) and resize it to (H, W, C) uint8.

        Training uses this. The caller draws the box and the flip.
        """
        left, top, right, bottom = box
        pixels = (left * image.width, top * image.height, right * image.width, bottom * image.height)
        result = image.resize(self.size[::-1], INTERPOLATIONS[self.interpolation], box=pixels)
        return _array(result.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else result)

    def normalize(self, batch: Tensor) -> Tensor:
        """Convert (…, C, H, W) uint8 to float32 on the same device, subtract the mean and divide by the std."""
        mean, std = self._mean_std(batch.device)
        return batch.to(torch.float32).div(255).sub(mean).div(std)

    def denormalize(self, batch: Tensor) -> Tensor:
        """Invert `normalize`: return uint8, rounded and clipped."""
        mean, std = self._mean_std(batch.device)
        return batch.to(torch.float32).mul(std).add(mean).mul(255).round().clamp(0, 255).to(torch.uint8)

    def crop_box(self, original: tuple[int, int]) -> Box:
        """Return the crop (left, top, right, bottom) of an original (height, width) that the model receives.

        It is in pixels of the original. With fit="pad" it extends beyond the image.
        """
        resized = self.resized_size(original)
        edges = [_offset(r, s) for r, s in zip(resized, self.size, strict=True)]
        (top, bottom), (left, right) = (
            (edge * o / r, (edge + s) * o / r)
            for edge, s, o, r in zip(edges, self.size, original, resized, strict=True)
        )
        return left, top, right, bottom

    def resized_size(self, original: tuple[int, int]) -> tuple[int, int]:
        """Return the (height, width) to which the image is resized before the centre crop."""
        target = (math.floor(self.size[0] / self.crop_fraction), math.floor(self.size[1] / self.crop_fraction))
        if self.fit == "squash":
            return target
        if self.fit == "crop" and target[0] == target[1]:
            height, width = original
            short, long = min(original), max(original)
            long = int(target[0] * long / short)
            return (target[0], long) if height <= width else (long, target[0])
        ratios = (original[0] / target[0], original[1] / target[1])
        ratio = min(ratios) if self.fit == "crop" else max(ratios)
        return max(round(original[0] / ratio), 1), max(round(original[1] / ratio), 1)

    def _fit(self, image: Image.Image, fill: tuple[int, ...]) -> np.ndarray:
        height, width = self.resized_size((image.height, image.width))
        if height * width > MAX_PIXELS:  # a very long image: resize only the crop, to save memory
            box = self.crop_box((image.height, image.width))
            return _array(image.resize(self.size[::-1], INTERPOLATIONS[self.interpolation], box))
        pixels = _array(image.resize((width, height), INTERPOLATIONS[self.interpolation]))
        top, left = _offset(height, self.size[0]), _offset(width, self.size[1])
        crop = pixels[max(top, 0) : max(top, 0) + self.size[0], max(left, 0) : max(left, 0) + self.size[1]]
        if crop.shape[:2] == self.size:
            return np.ascontiguousarray(crop)
        canvas = np.full((*self.size, pixels.shape[2]), fill, dtype=np.uint8)
        top, left = max(-top, 0), max(-left, 0)
        canvas[top : top + crop.shape[0], left : left + crop.shape[1]] = crop
        return canvas

    @property
    def _fill(self) -> tuple[int, ...]:
        return self.fill if self.fill is not None else tuple(round(255 * m) for m in self.mean)

    def _mean_std(self, device: torch.device) -> tuple[Tensor, Tensor]:
        mean, std = (torch.tensor(v, dtype=torch.float32, device=device)[:, None, None] for v in (self.mean, self.std))
        return mean, std


def channel_mean_std(pixels: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std per channel, in 0…1, of (N, H, W[, C]) uint8. They are exact, from a histogram."""
    values = pixels[..., None] if pixels.ndim == 3 else pixels
    channels, levels = values.shape[-1], np.arange(256) / 255
    shares = [np.bincount(values[..., c].ravel(), minlength=256) / (values.size / channels) for c in range(channels)]
    means = tuple(float(share @ levels) for share in shares)
    return means, tuple(math.sqrt(float(s @ (levels - mean) ** 2)) for s, mean in zip(shares, means, strict=True))


def _array(image: Image.Image) -> np.ndarray:
    pixels = np.array(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _offset(resized: int, size: int) -> int:
    """Return the start of the centre crop, negative if there is a margin to fill. Halves round to even."""
    return round((resized - size) / 2) if resized >= size else -((size - resized) // 2)


def _repeat(value: Any, count: Any) -> Any:
    """Repeat a single value `count` times: the sides of a square, or all channels."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = (value,)
    if isinstance(value, list | tuple) and isinstance(count, int) and len(value) != count and len(set(value)) == 1:
        return tuple(value)[:1] * count
    return tuple(value) if isinstance(value, list) else value


def _check(p: Preprocess) -> None:
    settings.check_types(p)
    if p.interpolation not in INTERPOLATIONS:
        raise UnknownNameError("interpolation", p.interpolation, INTERPOLATIONS)
    if p.channels < 1 or min(p.size) < 1:
        raise ConfigError(f"size={p.size}, channels={p.channels}: must be at least 1")
    if not 0 < p.crop_fraction <= 1:
        raise ConfigError(f"crop_fraction={p.crop_fraction}: expected above 0 and at most 1")
    for name in ("mean", "std", "fill"):
        values = getattr(p, name)
        if values is not None and len(values) != p.channels:
            raise ConfigError(f"{name}={values}: expected {p.channels} numbers, one per channel")
    if not all(math.isfinite(v) for v in p.mean + p.std) or min(p.std) <= 0:
        raise ConfigError(f"mean={p.mean}, std={p.std}: expected finite numbers, std above 0")
    if p.range is not None and not (all(map(math.isfinite, p.range)) and p.range[0] < p.range[1]):
        raise ConfigError(f"range={p.range}: expected two finite numbers, the smaller one first, such as (0, 4095)")
    if p.fill is not None and not all(0 <= v <= 255 for v in p.fill):
        raise ConfigError(f"fill={p.fill}: expected integers from 0 to 255")

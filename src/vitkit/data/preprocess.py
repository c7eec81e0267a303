"""Decode → resize → crop → normalise: one object, stored with the model and used by everything that feeds it.

Pixels stay uint8 until the batch is on the device; `normalize` does the rest there. Resizing is Pillow's: antialiased,
on 8-bit values, the filter's support growing with the shrinking. Sizes round as in timm's evaluation transform, so that
published weights see the numbers they were measured with.
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
from vitkit.data.decode import MAX_PIXELS, ImageSource, decode
from vitkit.errors import ConfigError, CorruptImageError, UnknownNameError

Box = tuple[float, float, float, float]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as most published weights use

INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@dataclass(frozen=True)
class Preprocess:
    """What happens to an image on its way to the model. The defaults suit photographs at 224 pixels.

    `fit` says how an image of another shape meets `size`:
    crop    the shorter side is resized to size / crop_fraction, then the centre is cut out: edges are lost
    squash  each side is resized to size / crop_fraction, then the centre is cut out: the aspect ratio is lost
    pad     the longer side is resized to size / crop_fraction, then the rest is filled; with 1.0 nothing is lost
    """

    size: tuple[int, int] = (224, 224)  # (height, width)
    channels: int = 3
    fit: Literal["crop", "squash", "pad"] = "crop"
    crop_fraction: float = 0.875  # 1.0 for small images, which have no edge to lose
    interpolation: str = "bicubic"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)  # of values in 0…1, per channel
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    fill: tuple[int, ...] | None = None  # the colour of fit="pad"; None: the mean

    def __post_init__(self) -> None:
        for name, count in (("size", 2), ("mean", self.channels), ("std", self.channels), ("fill", self.channels)):
            object.__setattr__(self, name, _spread(getattr(self, name), count))
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.to_dict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return settings.from_dict(cls, values)

    def replace(self, **changes: Any) -> Self:
        return type(self).from_dict({**self.to_dict(), **changes})

    def __call__(self, encoded: ImageSource, name: str | None = None, max_pixels: int = MAX_PIXELS) -> Tensor:
        """(C, H, W) uint8."""
        return torch.from_numpy(self.array(encoded, name, max_pixels)).permute(2, 0, 1).contiguous()

    def batch(self, images: Iterable[ImageSource]) -> Tensor:
        """(B, C, H, W) uint8."""
        return torch.stack([self(image) for image in images])

    def array(self, encoded: ImageSource, name: str | None = None, max_pixels: int = MAX_PIXELS) -> np.ndarray:
        """(H, W, C) uint8: decode and geometry."""
        if self.channels in (1, 3):
            return self.resize_and_crop(decode(encoded, channels=self.channels, name=name, max_pixels=max_pixels))
        # No image format has such channels: they come as arrays, and each is resized on its own as Pillow would.
        pixels = encoded if isinstance(encoded, np.ndarray) else None
        if pixels is None or pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != self.channels:
            name = name or (str(encoded) if isinstance(encoded, Path) else "image")
            raise CorruptImageError(name, f"is not a uint8 array (H, W, {self.channels}), as this preprocessing needs")
        planes = [Image.fromarray(np.ascontiguousarray(pixels[..., c])) for c in range(self.channels)]
        return np.concatenate([self._fit(p, self._fill[c : c + 1]) for c, p in enumerate(planes)], axis=2)

    def check_decodable(self, encoded: ImageSource, name: str | None = None) -> None:
        """A `CorruptImageError` where `array` would raise one, at less cost.

        A JPEG is decoded at an eighth: every byte of it is read and undone, and few pixels are computed.
        """
        if isinstance(encoded, np.ndarray) or self.channels not in (1, 3):
            self.array(encoded, name)
        else:
            decode(encoded, channels=self.channels, min_size=(1, 1), name=name)

    def resize_and_crop(self, image: Image.Image) -> np.ndarray:
        """A decoded image, resized and cut to (H, W, C) uint8."""
        return self._fit(image, self._fill)

    def random_resized_crop(self, image: Image.Image, box: Box, flip: bool = False) -> np.ndarray:
        """For training: the part `box` (left, top, right, bottom in fractions of the image) resized to (H, W, C) uint8.

        The draw of the box and of the flip is the caller's.
        """
        left, top, right, bottom = box
        pixels = (left * image.width, top * image.height, right * image.width, bottom * image.height)
        result = image.resize(self.size[::-1], INTERPOLATIONS[self.interpolation], box=pixels)
        return _array(result.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else result)

    def normalize(self, batch: Tensor) -> Tensor:
        """(…, C, H, W) uint8 → float32 on the same device, mean and deviation taken out."""
        mean, std = self._moments(batch.device)
        return batch.to(torch.float32).div(255).sub(mean).div(std)

    def denormalize(self, batch: Tensor) -> Tensor:
        """Back to uint8, to look at: the inverse of `normalize`, rounded and clipped."""
        mean, std = self._moments(batch.device)
        return batch.to(torch.float32).mul(std).add(mean).mul(255).round().clamp(0, 255).to(torch.uint8)

    def crop_box(self, original: tuple[int, int]) -> Box:
        """The rectangle (left, top, right, bottom) of an original (height, width) that the model sees, in its pixels.

        With fit="pad" it reaches beyond the image.
        """
        resized = self.resized_size(original)
        edges = [_offset(r, s) for r, s in zip(resized, self.size, strict=True)]
        (top, bottom), (left, right) = (
            (edge * o / r, (edge + s) * o / r)
            for edge, s, o, r in zip(edges, self.size, original, resized, strict=True)
        )
        return left, top, right, bottom

    def resized_size(self, original: tuple[int, int]) -> tuple[int, int]:
        """The (height, width) to which the whole image is resized before the centre is cut out."""
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
        if height * width > MAX_PIXELS:  # of a very long image only the part that is seen can be held
            box = self.crop_box((image.height, image.width))
            return _array(image.resize(self.size[::-1], INTERPOLATIONS[self.interpolation], box))
        pixels = _array(image.resize((width, height), INTERPOLATIONS[self.interpolation]))
        top, left = _offset(height, self.size[0]), _offset(width, self.size[1])
        seen = pixels[max(top, 0) : max(top, 0) + self.size[0], max(left, 0) : max(left, 0) + self.size[1]]
        if seen.shape[:2] == self.size:
            return np.ascontiguousarray(seen)
        canvas = np.full((*self.size, pixels.shape[2]), fill, dtype=np.uint8)
        top, left = max(-top, 0), max(-left, 0)
        canvas[top : top + seen.shape[0], left : left + seen.shape[1]] = seen
        return canvas

    @property
    def _fill(self) -> tuple[int, ...]:
        return self.fill if self.fill is not None else tuple(round(255 * m) for m in self.mean)

    def _moments(self, device: torch.device) -> tuple[Tensor, Tensor]:
        mean, std = (torch.tensor(v, dtype=torch.float32, device=device)[:, None, None] for v in (self.mean, self.std))
        return mean, std


def channel_mean_std(pixels: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, in 0…1, of (N, H, W[, C]) uint8: exact, by counting values."""
    values = pixels[..., None] if pixels.ndim == 3 else pixels
    levels = np.arange(256) / 255
    means, deviations = [], []
    for c in range(values.shape[-1]):
        share = np.bincount(values[..., c].ravel(), minlength=256) / (values.size / values.shape[-1])
        mean = float(share @ levels)
        means.append(mean)
        deviations.append(math.sqrt(float(share @ (levels - mean) ** 2)))
    return tuple(means), tuple(deviations)


def _array(image: Image.Image) -> np.ndarray:
    pixels = np.array(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _offset(resized: int, size: int) -> int:
    """Where the window begins; negative where there is a margin to fill. Python's round: halves go to the even side."""
    return round((resized - size) / 2) if resized >= size else -((size - resized) // 2)


def _spread(value: Any, count: Any) -> Any:
    """One number, alone or repeated, stands for all `count`: a square, or every channel alike."""
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
        raise ConfigError(f"mean={p.mean}, std={p.std}: expected finite numbers, deviations above 0")
    if p.fill is not None and not all(0 <= v <= 255 for v in p.fill):
        raise ConfigError(f"fill={p.fill}: expected whole numbers from 0 to 255")

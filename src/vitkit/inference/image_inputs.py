"""Image inputs: find the files that the user named, and turn files, bytes, arrays and tensors into model input."""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitkit.data.decode import SUFFIXES, DecodableImage
from vitkit.data.preprocess import Box, Preprocess
from vitkit.errors import DataError, InputError, WeightsError
from vitkit.model import ViT
from vitkit.model.config import Pair

ImageInput = str | Path | bytes | np.ndarray | Image.Image | Tensor
ImageInputs = ImageInput | Sequence[ImageInput]
STDIN = "-"
MAX_PREVIEW_SIDE = 1024  # pixels: large enough to draw, small enough to keep many images in memory


@dataclass(frozen=True)
class SourceImages:
    """The images as given, for drawing: upright previews, and coordinates in pixels of the originals."""

    names: tuple[str, ...]
    previews: tuple[np.ndarray, ...]  # (h, w, 1 or 3) uint8, at most MAX_PREVIEW_SIDE on a side
    sizes: np.ndarray  # (B, 2): height and width of the originals
    regions: np.ndarray  # (B, 4): left, top, right, bottom of the model's crop; outside the image where it was padded


def find_images(patterns: Sequence[str]) -> list[Path]:
    """Return the named files, the images in named folders (sorted) and the matches of patterns, in this order."""
    found = [path for pattern in patterns for path in _matches(pattern)]
    if not found:
        raise DataError(f"no images in {', '.join(patterns)}: expected files that end in {', '.join(sorted(SUFFIXES))}")
    return found


def as_list(images: Any) -> tuple[list[DecodableImage], bool]:
    """Return one or many images as a list for `Preprocess`, and whether a single image was given.

    Many images are a sequence, an array (B, H, W, C) or a tensor (B, C, H, W). Tensors hold uint8, or floats in 0…1;
    floats are rounded to 8 bits because preprocessing works on 8 bits.
    """
    many = isinstance(images, Sequence) and not isinstance(images, str | bytes | bytearray | memoryview)
    if many or (isinstance(images, Tensor | np.ndarray) and images.ndim == 4):
        return [_decodable(image) for image in images], False
    return [_decodable(images)], True


def prepare_images(
    model: ViT, images: ImageInputs, image_size: int | tuple[int, int] | None = None
) -> tuple[Tensor, SourceImages]:
    """Return a normalised batch (B, C, H, W) on the model's device, and the images that it was made from.

    A tensor of floats is used as it is: a batch that is normalised already. All else goes through `as_list` and the
    model's preprocessing, at `image_size` if one is given.
    """
    weight = model.patch_embed.proj.weight
    if isinstance(images, Tensor) and images.is_floating_point():
        if images.ndim != 4 or not len(images):
            raise InputError(f"images have shape {tuple(images.shape)}: expected (batch, channels, height, width)")
        return images.to(weight.device), _from_batch(model, images)
    many, _ = as_list(images)
    if not many:
        raise InputError("no images given: pass at least one")
    if model.info.preprocess is None:
        raise WeightsError("the model has no preprocessing settings: pass a normalised batch of tensors instead")
    preprocess: Preprocess = model.info.preprocess
    preprocess = preprocess if image_size is None else preprocess.replace(size=image_size)
    patch = model.config.patch_size
    names, inputs, previews, sizes, regions = [], [], [], [], []
    for index, image in enumerate(many):
        name, pixels = _decode(image, index, preprocess)
        height, width = pixels.shape[:2]
        if height < patch[0] or width < patch[1]:
            raise InputError(
                f"{name} has {height}×{width} pixels, less than one patch of {patch[0]}×{patch[1]}: use a larger image"
            )
        names.append(name)
        inputs.append(preprocess.array(pixels))
        previews.append(preview(pixels))
        sizes.append((height, width))
        regions.append(_without_remainder(preprocess.crop_box((height, width)), preprocess.size, patch))
    batch = torch.from_numpy(np.stack(inputs)).permute(0, 3, 1, 2).to(weight.device)
    source = SourceImages(tuple(names), tuple(previews), np.array(sizes), np.array(regions))
    return preprocess.normalize(batch).to(weight.dtype), source


def _without_remainder(box: Box, size: Pair, patch: Pair) -> Box:
    """Return the part of a crop that the patches cover: a model may drop pixels beyond the last complete patch."""
    left, top, right, bottom = box
    height, width = (s // p * p / s for s, p in zip(size, patch, strict=True))
    return left, top, left + (right - left) * width, top + (bottom - top) * height


def preview(pixels: np.ndarray) -> np.ndarray:
    """Return a copy (h, w, 1 or 3) of at most MAX_PREVIEW_SIDE on a side, with the first three of many channels."""
    shown = pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., :1]
    if max(shown.shape[:2]) <= MAX_PREVIEW_SIDE:
        return shown.copy()
    image = Image.fromarray(np.ascontiguousarray(shown if shown.shape[-1] == 3 else shown[..., 0]))
    image.thumbnail((MAX_PREVIEW_SIDE, MAX_PREVIEW_SIDE))
    return np.atleast_3d(np.asarray(image))


def _matches(pattern: str) -> Iterator[Path]:
    path = Path(pattern)
    if pattern == STDIN:
        yield Path(STDIN)
    elif path.is_dir():
        found = (p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        yield from sorted(p for p in found if not any(part.startswith(".") for part in p.relative_to(path).parts))
    elif path.exists():
        yield path
    elif matches := sorted(p for p in map(Path, glob.glob(pattern, recursive=True)) if p.is_file()):
        yield from matches
    else:
        raise DataError(f"no file or folder matches {pattern!r}")


def _decodable(image: Any) -> DecodableImage:
    if isinstance(image, Tensor):
        return _array_from_tensor(image)
    if isinstance(image, str):
        return Path(image)
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, Path | np.ndarray | Image.Image):
        return image
    raise InputError(f"an image is a path, bytes, a Pillow image, an array or a tensor, not {type(image).__name__}")


def _array_from_tensor(image: Tensor) -> np.ndarray:
    shape = tuple(image.shape)
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3:
        raise InputError(f"a tensor of shape {shape} is no image: expected (C, H, W), or (B, C, H, W) for many")
    if image.is_floating_point():
        if not (image.isfinite().all() and image.min() >= 0 and image.max() <= 1):
            raise InputError(
                "a tensor of floats has values outside of 0…1: pass pixels in 0…1, or call the model itself with a "
                "batch that is normalised already"
            )
        image = (image * 255).round().byte()
    if image.dtype != torch.uint8:
        raise InputError(f"a tensor of {image.dtype} is no image: expected uint8, or floats in 0…1")
    return np.ascontiguousarray(image.detach().cpu().permute(1, 2, 0).numpy())


def _decode(image: DecodableImage, index: int, preprocess: Preprocess) -> tuple[str, np.ndarray]:
    """Return a name and the pixels (H, W, C)."""
    name = str(image) if isinstance(image, Path) else f"image {index}"
    if isinstance(image, np.ndarray) and preprocess.channels not in (1, 3):
        return name, image
    return name, np.atleast_3d(np.asarray(preprocess.decode(image, name)))


def _from_batch(model: ViT, images: Tensor) -> SourceImages:
    """Recover pixels from a normalised batch; without the model's preprocessing, stretch each image to 0…255."""
    if model.info.preprocess is not None:
        pixels = model.info.preprocess.denormalize(images)
    else:
        low, high = images.amin(dim=(1, 2, 3), keepdim=True), images.amax(dim=(1, 2, 3), keepdim=True)
        pixels = ((images - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8)
    height, width = images.shape[2:]
    return SourceImages(
        names=tuple(f"image {i}" for i in range(len(images))),
        previews=tuple(preview(p) for p in pixels.permute(0, 2, 3, 1).cpu().numpy()),
        sizes=np.tile([height, width], (len(images), 1)),
        regions=np.tile([0.0, 0.0, width, height], (len(images), 1)),
    )

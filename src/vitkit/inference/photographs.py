"""Images as people have them → a batch as the model takes it, and the way back to the photograph."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitkit.data.decode import decode
from vitkit.data.preprocess import Box, Preprocess
from vitkit.errors import InputError, WeightsError
from vitkit.model import ViT
from vitkit.model.config import Pair

Picture = str | Path | bytes | np.ndarray | Image.Image
Images = Tensor | Picture | Sequence[Picture]
LONGEST = 1024  # pixels that are kept of a photograph's longer side: enough to draw, and many fit in memory


@dataclass(frozen=True)
class Photographs:
    """Upright, for the eye. Coordinates are those of the originals, whatever was kept of their pixels."""

    names: tuple[str, ...]
    pictures: tuple[np.ndarray, ...]  # (h, w, 1 or 3) uint8, at most LONGEST on a side
    sizes: np.ndarray  # (B, 2): height and width of the originals
    regions: np.ndarray  # (B, 4): left, top, right, bottom of what the model saw; beyond the edges where it was padded


def take(model: ViT, images: Images, size: int | tuple[int, int] | None = None) -> tuple[Tensor, Photographs]:
    """(B, C, H, W) on the model's device, normalised, and what it was made of."""
    weight = model.patch_embed.proj.weight
    if isinstance(images, Tensor):
        if images.ndim != 4 or not len(images):
            raise InputError(f"images have shape {tuple(images.shape)}: expected (batch, channels, height, width)")
        return images.to(weight.device), _of_tensors(model, images)
    many: list[Any] = list(images) if isinstance(images, list | tuple) else [images]
    if not many:
        raise InputError("no images to explain: give at least one")
    if model.info is None or model.info.preprocess is None:
        raise WeightsError("the model brings no preprocessing: give a normalised batch of tensors instead")
    preprocess: Preprocess = model.info.preprocess
    preprocess = preprocess if size is None else preprocess.replace(size=size)
    names, arrays, pictures, sizes, regions = zip(
        *(_taken(one, i, preprocess, model.config.patch_size) for i, one in enumerate(many)), strict=True
    )
    batch = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).to(weight.device)
    seen = Photographs(names, pictures, np.array(sizes), np.array(regions))
    return preprocess.normalize(batch).to(weight.dtype), seen


def _taken(
    picture: Picture, index: int, preprocess: Preprocess, patch: Pair
) -> tuple[str, np.ndarray, np.ndarray, Pair, Box]:
    """Name, pixels as the model sees them and as they are drawn, size, region. The original is not kept."""
    name, pixels = _open(Path(picture) if isinstance(picture, str) else picture, index, preprocess)
    height, width = pixels.shape[:2]
    if height < patch[0] or width < patch[1]:
        raise InputError(
            f"{name} has {height}×{width} pixels, less than one patch of {patch[0]}×{patch[1]}: "
            "there is nothing to point at, use a larger image"
        )
    return name, preprocess.array(pixels), shrink(pixels), (height, width), preprocess.crop_box((height, width))


def shrink(pixels: np.ndarray) -> np.ndarray:
    """To what is kept, a copy: of many channels the first three."""
    shown = pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., :1]
    if max(shown.shape[:2]) <= LONGEST:
        return shown.copy()
    image = Image.fromarray(np.ascontiguousarray(shown if shown.shape[-1] == 3 else shown[..., 0]))
    image.thumbnail((LONGEST, LONGEST))
    small = np.asarray(image)
    return small if small.ndim == 3 else small[..., None]


def _open(
    picture: bytes | Path | np.ndarray | Image.Image, index: int, preprocess: Preprocess
) -> tuple[str, np.ndarray]:
    name = str(picture) if isinstance(picture, Path) else f"image {index}"
    if isinstance(picture, np.ndarray) and preprocess.channels not in (1, 3):
        return name, picture
    pixels = np.asarray(decode(picture, channels=preprocess.channels, name=name))
    return name, pixels if pixels.ndim == 3 else pixels[..., None]


def _of_tensors(model: ViT, images: Tensor) -> Photographs:
    """A batch is its own photograph; without preprocessing its colours can only be guessed: the least is black."""
    if model.info is not None and model.info.preprocess is not None:
        pixels = model.info.preprocess.denormalize(images)
    else:
        low, high = images.amin(dim=(1, 2, 3), keepdim=True), images.amax(dim=(1, 2, 3), keepdim=True)
        pixels = ((images - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8)
    height, width = images.shape[2:]
    return Photographs(
        names=tuple(f"image {i}" for i in range(len(images))),
        pictures=tuple(shrink(p) for p in pixels.permute(0, 2, 3, 1).cpu().numpy()),
        sizes=np.tile([height, width], (len(images), 1)),
        regions=np.tile([0.0, 0.0, width, height], (len(images), 1)),
    )

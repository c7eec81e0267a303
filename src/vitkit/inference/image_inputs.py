"""Pictures as people have them: found by name, folder or pattern; taken as path, bytes, image, array or tensor."""

import glob
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vitkit.data.decode import SUFFIXES
from vitkit.errors import DataError, InputError

if TYPE_CHECKING:
    from torch import Tensor

Picture = str | Path | bytes | np.ndarray | Image.Image
STDIN = "-"


def as_list(images: Any) -> tuple[list[Picture], bool]:
    """One or many, as a list for `Preprocess`; and whether it was one.

    Many are a sequence, an array (B, H, W, C) or a tensor (B, C, H, W). Tensors are (C, H, W): uint8, or floats in 0…1,
    which are rounded to the 8 bits that preprocessing works on.
    """
    if _is_tensor(images) or isinstance(images, np.ndarray):
        if images.ndim == 4:
            return [_one(image) for image in images], False
        return [_one(images)], True
    if isinstance(images, Sequence) and not isinstance(images, str | bytes | bytearray | memoryview):
        return [_one(image) for image in images], False
    return [_one(images)], True


def _one(image: Any) -> Picture:
    if _is_tensor(image):
        return _from_tensor(image)
    if isinstance(image, str):
        return Path(image)
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, Path | np.ndarray | Image.Image):
        return image
    raise InputError(f"an image is a path, bytes, a Pillow image, an array or a tensor, not {type(image).__name__}")


def _is_tensor(image: Any) -> bool:
    """Without importing torch, which a model in another runtime does not need."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(image, torch.Tensor)


def _from_tensor(image: "Tensor") -> np.ndarray:
    shape = tuple(image.shape)
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3:
        raise InputError(f"a tensor of shape {shape} is no image: expected (C, H, W), or (B, C, H, W) for many")
    if image.is_floating_point():
        if not (image.isfinite().all() and image.min() >= 0 and image.max() <= 1):
            raise InputError(
                "a tensor of floats has values outside of 0…1: give pixels in 0…1, or call the model itself with a "
                "batch that is normalised already"
            )
        image = (image * 255).round().byte()
    if str(image.dtype) != "torch.uint8":
        raise InputError(f"a tensor of {image.dtype} is no image: expected uint8, or floats in 0…1")
    return np.ascontiguousarray(image.detach().cpu().permute(1, 2, 0).numpy())


def find_images(words: Sequence[str]) -> list[Path]:
    """Files as named, the images of folders, the matches of patterns; in this order, each folder sorted."""
    found = [path for word in words for path in _matches(word)]
    if not found:
        raise DataError(f"no images in {', '.join(words)}: expected files that end in {', '.join(sorted(SUFFIXES))}")
    return found


def _matches(word: str) -> Iterator[Path]:
    path = Path(word)
    if word == STDIN:
        yield Path(STDIN)
    elif path.is_dir():
        found = (p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        yield from sorted(p for p in found if not any(part.startswith(".") for part in p.relative_to(path).parts))
    elif path.exists():
        yield path
    elif matches := sorted(p for p in map(Path, glob.glob(word, recursive=True)) if p.is_file()):
        yield from matches
    else:
        raise DataError(f"{word}: no such file or folder, and no file matches it as a pattern")

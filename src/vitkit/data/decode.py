"""An encoded image → an 8-bit Pillow image in grey or RGB, as a person would see it. Nothing is guessed in silence.

The rules, each where viewers and naive conversions part ways:

- EXIF orientation is applied; of an animation the first frame counts.
- Transparency is laid over white: what lies under a transparent pixel is arbitrary, often black or noise, and white is
  the page on which such pictures are drawn. (Dropping the alpha channel would show what was never meant to be seen.)
- 16-bit grey is scaled by its whole range, not clipped at 255. Whole 32-bit and floating-point images name no range:
  the smallest of 0…1 (floats only), 0…255 and 0…65535 that holds their values is taken, else their own minimum and
  maximum.
- A truncated file is an error. A file that states more pixels than `MAX_PIXELS` is refused by its header.
"""

import io
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vitkit.errors import CorruptImageError

ImageSource = bytes | Path | np.ndarray | Image.Image

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})

# Pillow's own limit, above which it warns: 256 MiB as RGB
MAX_PIXELS = 1024 * 1024 * 1024 // 4 // 3

_BITS_PER_SAMPLE = 258  # TIFF: 12-bit samples come in 16-bit words
_ORIENTATION = 0x0112
_SIDEWAYS = (5, 6, 7, 8)


def decode(
    encoded: ImageSource,
    *,
    channels: int = 3,
    min_size: tuple[int, int] | None = None,
    name: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Image.Image:
    """The image as mode "L" (`channels=1`) or "RGB" (`channels=3`).

    `min_size`, (height, width): the size to which the whole image will be shrunk at least. A JPEG is then decoded at
    1/2, 1/4 or 1/8, whichever still leaves twice that size on both sides; other formats ignore it. `name` is what an
    error calls the image; a path names itself.
    """
    name = name or (str(encoded) if isinstance(encoded, Path) else "image")
    mode: Literal["L", "RGB"] = "L" if channels == 1 else "RGB"
    try:
        return _eight_bit(_open(encoded, min_size, max_pixels, name), mode, name)
    except CorruptImageError:
        raise
    except Exception as error:  # Pillow's decoders raise whatever a broken file leads them to
        raise CorruptImageError(name, _reason(error)) from error


def read_header(encoded: bytes | np.ndarray, name: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The image opened, its size, mode and format known, nothing decoded; `decode` takes it from there."""
    try:
        if isinstance(encoded, np.ndarray):
            return _from_array(encoded, name)
        return _header(io.BytesIO(encoded), name, max_pixels)
    except CorruptImageError:
        raise
    except Exception as error:
        raise CorruptImageError(name, _reason(error)) from error


def oriented_size(header: Image.Image) -> tuple[int, int]:
    """(width, height) as decoded, from the header alone."""
    # Pillow states the size of a TIFF as it will be once turned, those of other formats as they are stored.
    turned = header.format != "TIFF" and _orientation(header) in _SIDEWAYS
    return (header.height, header.width) if turned else header.size


def _open(encoded: ImageSource, min_size: tuple[int, int] | None, max_pixels: int, name: str) -> Image.Image:
    """The image with its pixels decoded and the right way up."""
    if isinstance(encoded, np.ndarray):
        return _from_array(encoded, name)
    if isinstance(encoded, Image.Image):
        image = encoded
        _check_pixels(image, name, max_pixels)
    else:
        content = encoded.read_bytes() if isinstance(encoded, Path) else encoded
        image = _header(io.BytesIO(content), name, max_pixels)
    if min_size is not None and image.format in ("JPEG", "MPO"):  # of an image that is decoded, draft leaves all as is
        height, width = min_size[::-1] if _orientation(image) in _SIDEWAYS else min_size
        image.draft(None, (2 * width, 2 * height))
    image.load()
    return ImageOps.exif_transpose(image) if _orientation(image) > 1 else image


def _header(file: io.BytesIO, name: str, max_pixels: int) -> Image.Image:
    if not file.getbuffer().nbytes:
        raise CorruptImageError(name, "the file is empty")
    image = Image.open(file, formats=FORMATS)
    _check_pixels(image, name, max_pixels)
    return image


def _check_pixels(image: Image.Image, name: str, max_pixels: int) -> None:
    if image.width * image.height > max_pixels:
        raise CorruptImageError(
            name, f"states {image.width}×{image.height} pixels, more than the limit of {max_pixels:,}: shrink it first"
        )


def _orientation(image: Image.Image) -> int:
    """1 (upright) unless EXIF says otherwise in a way that can be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a broken EXIF block does not make the picture unusable
        return 1


def _from_array(pixels: np.ndarray, name: str) -> Image.Image:
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)):
        raise CorruptImageError(
            name, f"is an array of {pixels.dtype} {pixels.shape}: expected uint8 (H, W) or (H, W, 1, 3 or 4)"
        )
    return Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else np.ascontiguousarray(pixels))


def _eight_bit(image: Image.Image, mode: Literal["L", "RGB"], name: str) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_scale(np.asarray(image), _top(image), name))
    elif image.has_transparency_data:
        image = _over_white(image.convert("RGBA"))
    elif image.mode not in ("1", "L", "RGB"):
        image = image.convert("RGB")  # from which every mode has a way to grey
    return image if image.mode == mode else image.convert(mode)


def _over_white(image: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _top(image: Image.Image) -> int | None:
    """The largest value the samples can have, where the file says so."""
    if not image.mode.startswith("I;16"):
        return None
    bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))
    return int(2 ** (bits if isinstance(bits, int) else bits[0])) - 1


def _scale(values: np.ndarray, top: int | None, name: str) -> np.ndarray:
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise CorruptImageError(name, "has NaN or infinite pixels")
    low, high = float(numbers.min()), float(numbers.max())
    if top is not None:
        start, end = 0.0, float(top)
    else:
        ranges = [1.0, 255.0, 65535.0] if values.dtype.kind == "f" else [255.0, 65535.0]
        start, end = next(((0.0, end) for end in ranges if low >= 0 and high <= end), (low, high))
    return np.rint((numbers - start) * (255.0 / ((end - start) or 1.0))).clip(0, 255).astype(np.uint8)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"is not an image of a known format ({', '.join(FORMATS)})"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"states more pixels than the limit of {MAX_PIXELS:,}: shrink it first"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return f"cannot be decoded ({' '.join(str(error).split()) or type(error).__name__})"

"""Decode an encoded image to an 8-bit Pillow image in grey or RGB, as a viewer shows it.

Naive conversions differ from viewers in these cases:

- EXIF orientation is applied. An animation is decoded to its first frame.
- Transparency is composited over white. The colour under a transparent pixel is arbitrary, often black or noise, so
  dropping the alpha channel would show it.
- 16-bit grey is scaled by its full range, not clipped at 255. 32-bit integer and floating-point images have no defined
  range. The smallest of 0…1 (floats only), 0…255 and 0…65535 that holds their values is used, else their minimum and
  maximum. `value_range` replaces the range of all of these: 12 bits of a camera in 16-bit files use 1/16 of the range.
- A truncated file is an error. A file whose header states more pixels than `MAX_PIXELS` is refused.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vitkit.errors import CorruptImageError

DecodableImage = bytes | Path | np.ndarray | Image.Image

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})

# Pillow warns above this number: 256 MiB as RGB
MAX_PIXELS = 1024 * 1024 * 1024 // 4 // 3

_BITS_PER_SAMPLE = 258  # TIFF: 12-bit samples come in 16-bit words
_ORIENTATION = 0x0112
_SIDEWAYS = (5, 6, 7, 8)  # orientations that swap width and height
_BAND = 256  # rows that are converted at once: copies of a complete large image would need gigabytes


@dataclass(frozen=True)
class PixelRange:
    """The values of an image of more than 8 bits, and the range of its format, which `decode` maps to 0…255."""

    used: tuple[float, float]
    nominal: tuple[float, float]
    colour: bool = False  # 16-bit colour, of which Pillow reads the upper 8 bits


def decode(
    encoded: DecodableImage,
    *,
    channels: int = 3,
    min_size: tuple[int, int] | None = None,
    name: str | None = None,
    max_pixels: int = MAX_PIXELS,
    value_range: tuple[float, float] | None = None,
) -> Image.Image:
    """Return the image in mode "L" (`channels=1`) or "RGB" (`channels=3`).

    `min_size`, (height, width), is the size to which the caller will shrink the image. A JPEG is then decoded at 1/2,
    1/4 or 1/8 if that leaves at least twice this size on both sides; other formats ignore it. `value_range` has the
    values that become 0 and 255 in images of more than 8 bits, by default the range of the format. Errors refer to the
    image as `name`, by default its path.
    """
    name = name or (str(encoded) if isinstance(encoded, Path) else "image")
    mode: Literal["L", "RGB"] = "L" if channels == 1 else "RGB"
    try:
        image, colour = _open(encoded, min_size, max_pixels, name)
        if colour and value_range is not None:
            reason = "has 16-bit colour, of which only the upper 8 bits can be read, so a range cannot be applied"
            raise CorruptImageError(name, f"{reason}: save it with 8 bits per channel")
        return _eight_bit(image, mode, name, value_range)
    except CorruptImageError:
        raise
    except Exception as error:  # Pillow's decoders raise many exceptions for broken files
        raise CorruptImageError(name, _reason(error)) from error


def read_header(encoded: bytes | np.ndarray, name: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Open an image and read size, mode and format without decoding it. `decode` accepts the result."""
    try:
        if isinstance(encoded, np.ndarray):
            return _from_array(encoded, name)
        return _header(io.BytesIO(encoded), name, max_pixels)
    except CorruptImageError:
        raise
    except Exception as error:
        raise CorruptImageError(name, _reason(error)) from error


def pixel_range(encoded: bytes | np.ndarray, name: str) -> PixelRange | None:
    """Return the used and the nominal range of an image of more than 8 bits; None for other images."""
    if isinstance(encoded, np.ndarray):
        return None
    header = read_header(encoded, name)
    if not (_is_deep(header) or _is_16_bit_colour(header)):
        return None
    try:
        image, colour = _open(encoded, None, MAX_PIXELS, name)
        values = np.asarray(image) * np.uint16(257) if colour else np.asarray(image)
        nominal = (0.0, 65535.0) if colour else _nominal_range(image, values)
        return PixelRange((float(values.min()), float(values.max())), nominal, colour)
    except Exception as error:
        raise CorruptImageError(name, _reason(error)) from error


def oriented_size(header: Image.Image) -> tuple[int, int]:
    """Return the (width, height) that the decoded image will have, from the header alone."""
    # Pillow reports the size of a TIFF after its rotation, and of other formats before it.
    rotated = header.format != "TIFF" and _orientation(header) in _SIDEWAYS
    return (header.height, header.width) if rotated else header.size


def _open(
    encoded: DecodableImage, min_size: tuple[int, int] | None, max_pixels: int, name: str
) -> tuple[Image.Image, bool]:
    """Return the image with its pixels decoded and its orientation applied, and whether it has 16-bit colour."""
    if isinstance(encoded, np.ndarray):
        return _from_array(encoded, name), False
    if isinstance(encoded, Image.Image):
        image = encoded
        _check_pixels(image, name, max_pixels)
    else:
        content = encoded.read_bytes() if isinstance(encoded, Path) else encoded
        image = _header(io.BytesIO(content), name, max_pixels)
    if min_size is not None and image.format in ("JPEG", "MPO"):  # no effect on a decoded image
        height, width = min_size[::-1] if _orientation(image) in _SIDEWAYS else min_size
        image.draft(None, (2 * width, 2 * height))
    colour = _is_16_bit_colour(image)
    image.load()
    return ImageOps.exif_transpose(image) if _orientation(image) > 1 else image, colour


def _header(file: io.BytesIO, name: str, max_pixels: int) -> Image.Image:
    if not file.getbuffer().nbytes:
        raise CorruptImageError(name, "the file is empty")
    image = Image.open(file, formats=FORMATS)
    _check_pixels(image, name, max_pixels)
    return image


def _check_pixels(image: Image.Image, name: str, max_pixels: int) -> None:
    if image.width * image.height > max_pixels:
        raise CorruptImageError(
            name, f"has {image.width}×{image.height} pixels, more than the limit of {max_pixels:,}: shrink it first"
        )


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation: 1 (upright) if it is missing or unreadable."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # an image with a broken EXIF block is still usable
        return 1


def _from_array(pixels: np.ndarray, name: str) -> Image.Image:
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)):
        raise CorruptImageError(
            name, f"is an array of {pixels.dtype} {pixels.shape}: expected uint8 (H, W) or (H, W, 1, 3 or 4)"
        )
    return Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else np.ascontiguousarray(pixels))


def _is_deep(image: Image.Image) -> bool:
    """Return True for grey of more than 8 bits."""
    return image.mode.startswith("I") or image.mode == "F"


def _is_16_bit_colour(header: Image.Image) -> bool:
    """Return True for a file, not decoded yet, whose 16-bit channels Pillow reduces to their upper 8 bits."""
    return not _is_deep(header) and any(";16" in str(tile[3]) for tile in getattr(header, "tile", ()))


def _eight_bit(
    image: Image.Image, mode: Literal["L", "RGB"], name: str, value_range: tuple[float, float] | None
) -> Image.Image:
    if _is_deep(image):
        values = np.asarray(image)
        if not np.isfinite(values).all():
            raise CorruptImageError(name, "has NaN or infinite pixels")
        image = Image.fromarray(_scale(values, *(value_range or _nominal_range(image, values))))
    elif image.has_transparency_data:
        image = _over_white(image)
    elif image.mode not in ("1", "L", "RGB"):
        image = image.convert("RGB")  # Pillow cannot convert every mode to grey directly
    return image if image.mode == mode else image.convert(mode)


def _over_white(image: Image.Image) -> Image.Image:
    result = Image.new("RGB", image.size)
    for top in range(0, image.height, _BAND):
        band = image.crop((0, top, image.width, min(top + _BAND, image.height)))
        band.info = image.info  # a palette's transparency
        white = Image.new("RGBA", band.size, "white")
        result.paste(Image.alpha_composite(white, band.convert("RGBA")).convert("RGB"), (0, top))
    return result


def _nominal_range(image: Image.Image, values: np.ndarray) -> tuple[float, float]:
    """Return the range of the format, or the smallest usual one that holds the values if the format has none."""
    if image.mode.startswith("I;16"):
        bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))
        return 0.0, 2.0 ** (bits if isinstance(bits, int) else bits[0]) - 1
    low, high = float(values.min()), float(values.max())
    ranges = [1.0, 255.0, 65535.0] if values.dtype.kind == "f" else [255.0, 65535.0]
    return next(((0.0, end) for end in ranges if low >= 0 and high <= end), (low, high))


def _scale(values: np.ndarray, start: float, end: float) -> np.ndarray:
    scaled = np.empty(values.shape, np.uint8)
    for top in range(0, len(values), _BAND):
        numbers = values[top : top + _BAND].astype(np.float64)
        scaled[top : top + _BAND] = np.rint((numbers - start) * (255.0 / ((end - start) or 1.0))).clip(0, 255)
    return scaled


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"is not an image of a known format ({', '.join(FORMATS)})"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"has more pixels than the limit of {MAX_PIXELS:,}: shrink it first"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return f"cannot be decoded ({' '.join(str(error).split()) or type(error).__name__})"

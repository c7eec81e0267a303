"""An image as the bytes of a file: as it came, or, where it came as an array, as a PNG that loses nothing."""

import io

import numpy as np
from PIL import Image

from vitkit.data.dataset import RawImage
from vitkit.data.decode import decode, read_header
from vitkit.errors import CorruptImageError

ENDINGS = {"JPEG": "jpg", "MPO": "jpg", "PNG": "png", "WEBP": "webp", "BMP": "bmp", "GIF": "gif", "TIFF": "tif"}
PNG_CHANNELS = (1, 3, 4)


def as_file(encoded: RawImage, name: str) -> tuple[bytes, str]:
    """(content, ending); an error where it cannot be decoded."""
    if isinstance(encoded, np.ndarray):
        return _png(encoded, name), "png"
    header = read_header(encoded, name)
    decode(encoded, name=name, min_size=(1, 1))  # a JPEG at an eighth: every byte of it is read and undone
    return encoded, ENDINGS[header.format or ""]


def _png(pixels: np.ndarray, name: str) -> bytes:
    if pixels.ndim == 3 and pixels.shape[2] not in PNG_CHANNELS:
        raise CorruptImageError(name, f"has {pixels.shape[2]} channels, which no image file holds: keep it as .npz")
    file = io.BytesIO()
    flat = pixels[..., 0] if pixels.shape[2:] == (1,) else pixels
    Image.fromarray(np.ascontiguousarray(flat)).save(file, "PNG", compress_level=1)
    return file.getvalue()

"""Images embedded in the page: tiles, mosaics of maps, colour scales."""

import base64
import io
from collections.abc import Iterable
from html import escape

import numpy as np
from PIL import Image

from vitkit.explanation.heatmap import COLORMAP, PIXELATED_BELOW, colorize, to_pillow

MAX_SIDE = 256  # pixels


def data_url(pixels: np.ndarray) -> str:
    """Encode (H, W) or (H, W, C) uint8: small images as PNG, large ones as JPEG of at most MAX_SIDE."""
    image = to_pillow(pixels)
    if max(image.size) <= PIXELATED_BELOW:
        return _encode(image, "png")
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    return _encode(image, "jpeg", quality=85)


def tile(pixels: np.ndarray, caption: str, alt: str = "") -> str:
    sharp = " class='pixels'" if max(pixels.shape[:2]) <= PIXELATED_BELOW else ""
    return (
        f"<figure class='tile'><img{sharp} src='{data_url(pixels)}' alt='{escape(alt or caption, quote=True)}'>"
        f"{escape(caption)}</figure>"
    )


def tiles(items: Iterable[str]) -> str:
    return f"<div class='tiles'>{''.join(items)}</div>\n"


def mosaic(rows: np.ndarray, alt: str, side: int = 420, gap: int = 4) -> str:
    """Join (R, C, h, w, 3) into one PNG of R × C images with transparent gaps; each value is a sharp square."""
    r, c = rows.shape[:2]
    times = max(1, side // max(r * rows.shape[2], c * rows.shape[3]))
    rows = rows.repeat(times, axis=2).repeat(times, axis=3)
    h, w = rows.shape[2:4]
    canvas = np.zeros((r * (h + gap) - gap, c * (w + gap) - gap, 4), dtype=np.uint8)
    for i, j in np.ndindex(r, c):
        top, left = i * (h + gap), j * (w + gap)
        canvas[top : top + h, left : left + w] = np.dstack([rows[i, j], np.full((h, w), 255)])
    return f"<img class='mosaic' src='{_encode(Image.fromarray(canvas), 'png')}' alt='{escape(alt, quote=True)}'>"


def color_scale(low: str, high: str, colormap: str = COLORMAP) -> str:
    strip = Image.fromarray(colorize(np.linspace(0, 1, 64)[None], colormap=colormap))
    return f"{escape(low)} <img class='ramp' src='{_encode(strip, 'png')}' alt='to'> {escape(high)}"


def _encode(image: Image.Image, kind: str, **options: int) -> str:
    file = io.BytesIO()
    image.save(file, kind, optimize=True, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"

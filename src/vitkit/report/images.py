"""Images as parts of the page: what the model saw, and a map laid over it."""

import base64
import io
from collections.abc import Iterable
from html import escape

import numpy as np
from matplotlib import colormaps
from PIL import Image

from vitkit.explanation.plots import COLOURS, OPACITY, scale

SMALL = 64  # pixels on a side: below, an image is shown pixel by pixel and without loss
LARGE = 256  # above, it is shown no larger than this
FAINTEST, CONTRAST = 40, 0.6  # of the picture under a map, so that the map decides what is light and dark
OVERLAY = 128  # at least so large is a picture with a map over it, for the map is smooth


def source(pixels: np.ndarray) -> str:
    """(H, W) or (H, W, C) uint8 as an address that holds the picture; of many channels the first three."""
    image = _image(pixels)
    if max(image.size) <= SMALL:
        return _address(image, "png")
    image.thumbnail((LARGE, LARGE))
    return _address(image, "jpeg", quality=85)


def tile(pixels: np.ndarray, caption: str, alt: str = "") -> str:
    sharp = " class='pixels'" if max(pixels.shape[:2]) <= SMALL else ""
    return (
        f"<figure class='tile'><img{sharp} src='{source(pixels)}' alt='{escape(alt or caption, quote=True)}'>"
        f"{escape(caption)}</figure>"
    )


def tiles(items: Iterable[str]) -> str:
    return f"<div class='tiles'>{''.join(items)}</div>\n"


def heat(values: np.ndarray, low: float | None = None, high: float | None = None, colours: str = COLOURS) -> np.ndarray:
    """(gh, gw) → (gh, gw, 3) uint8: one pixel per value, from `low` to `high` or over its own range."""
    low = float(values.min()) if low is None else low
    high = float(values.max()) if high is None else high
    level = np.clip((values - low) / max(high - low, 1e-12), 0, 1)
    return np.rint(colormaps[colours](level)[..., :3] * 255).astype(np.uint8)


def overlay(pixels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A map laid smoothly over the picture in grey, in the colours and on the scale of `vitkit explain`."""
    grey = _image(pixels).convert("L")
    enlarge = max(1, -(-OVERLAY // max(grey.size)))
    size = (grey.width * enlarge, grey.height * enlarge)
    ground = np.asarray(grey.resize(size, Image.Resampling.NEAREST), np.float64)[..., None]
    smooth = np.asarray(Image.fromarray(values.astype(np.float32)).resize(size, Image.Resampling.BICUBIC))
    norm = scale(values)
    colour = heat(np.asarray(smooth, np.float64), norm.vmin, norm.vmax)
    return np.rint((1 - OPACITY) * (FAINTEST + CONTRAST * ground) + OPACITY * colour).astype(np.uint8)


def mosaic(rows: np.ndarray, alt: str, side: int = 420, gap: int = 4) -> str:
    """(R, C, h, w, 3) → R × C pictures as one, each pixel a sharp square; between them the page shows through."""
    r, c = rows.shape[:2]
    times = max(1, side // max(r * rows.shape[2], c * rows.shape[3]))
    rows = rows.repeat(times, axis=2).repeat(times, axis=3)
    h, w = rows.shape[2:4]
    canvas = np.zeros((r * (h + gap) - gap, c * (w + gap) - gap, 4), dtype=np.uint8)
    for i, j in np.ndindex(r, c):
        top, left = i * (h + gap), j * (w + gap)
        canvas[top : top + h, left : left + w] = np.dstack([rows[i, j], np.full((h, w), 255)])
    address = _address(Image.fromarray(canvas), "png")
    return f"<div class='mosaic'><img src='{address}' alt='{escape(alt, quote=True)}'></div>"


def ramp(low: str, high: str, colours: str = COLOURS) -> str:
    """The colours of a map from the least to the most."""
    strip = heat(np.linspace(0, 1, 64)[None], colours=colours)
    return f"{escape(low)} <img class='ramp' src='{_address(Image.fromarray(strip), 'png')}' alt='to'> {escape(high)}"


def _address(image: Image.Image, kind: str, **how: int) -> str:
    file = io.BytesIO()
    image.save(file, kind, optimize=True, **how)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def _image(pixels: np.ndarray) -> Image.Image:
    if pixels.ndim == 3:
        pixels = pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., 0]
    return Image.fromarray(np.ascontiguousarray(pixels))

"""Heat maps: numbers as colours, and a map blended over its image. Plots, report and server all use these functions."""

import numpy as np
from matplotlib import colormaps
from PIL import Image

COLORMAP = "plasma"  # perceptually uniform: lightness grows with the value, also in grey and for colour-blind readers
OPACITY = 0.55
GREY_FLOOR, GREY_CONTRAST = 40, 0.75  # of the image under a map, so that the map decides what is light and dark
PIXELATED_BELOW = 64  # pixels: the pixels of smaller images stay visible when the image is enlarged


def color_range(values: np.ndarray) -> tuple[float, float]:
    """Return the values of the first and the last colour. Evidence against a class, below 0, is as dark as none."""
    low = max(float(values.min()), 0.0)
    return low, max(float(values.max()), low + 1e-12)


def rescale(values: np.ndarray, low: float | None = None, high: float | None = None) -> np.ndarray:
    """Map `low`…`high`, by default the range of the values, to 0…1 and clip."""
    low = float(values.min()) if low is None else low
    high = float(values.max()) if high is None else high
    return np.clip((values - low) / max(high - low, 1e-12), 0, 1)


def colorize(
    values: np.ndarray, low: float | None = None, high: float | None = None, colormap: str = COLORMAP
) -> np.ndarray:
    """Return (..., 3) uint8: one colour per value."""
    return np.rint(colormaps[colormap](rescale(values, low, high))[..., :3] * 255).astype(np.uint8)


def overlay(
    pixels: np.ndarray, values: np.ndarray, opacity: float = OPACITY, smooth: bool = True, min_side: int = 128
) -> np.ndarray:
    """Blend a map (gh, gw) over an image (H, W[, C]) uint8, enlarged to `min_side` at least; return (H', W', 3) uint8.

    The image fades to grey as the map becomes opaque. At an opacity of 0 it is returned as it is.
    """
    image = to_pillow(pixels)
    enlarge = max(1, -(-min_side // max(image.size)))
    size = (image.width * enlarge, image.height * enlarge)
    way = Image.Resampling.NEAREST if max(image.size) < PIXELATED_BELOW else Image.Resampling.BICUBIC
    image = image.resize(size, way)
    colours, grey = (np.asarray(image.convert(mode), np.float64) for mode in ("RGB", "L"))
    faded = GREY_FLOOR + GREY_CONTRAST * grey[..., None]
    ground = colours + min(opacity / OPACITY, 1.0) * (faded - colours)
    way = Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST
    resized = np.asarray(Image.fromarray(values.astype(np.float32)).resize(size, way), np.float64)
    return np.rint((1 - opacity) * ground + opacity * colorize(resized, *color_range(values))).astype(np.uint8)


def to_pillow(pixels: np.ndarray) -> Image.Image:
    """Convert (H, W) or (H, W, C) uint8; of many channels the first three are kept."""
    if pixels.ndim == 3:
        pixels = pixels[..., :3] if pixels.shape[-1] >= 3 else pixels[..., 0]
    return Image.fromarray(np.ascontiguousarray(pixels))

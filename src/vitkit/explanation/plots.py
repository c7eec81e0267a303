"""Matplotlib figures of explanations and of the model itself. `figure.savefig` writes PNG, SVG or PDF.

Figures are created without pyplot, so that there is nothing to close.
"""

import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from PIL import Image

from vitkit.evaluation.plots import BLUE, PALE_GREY, VERMILION, add_colorbar, literal
from vitkit.explanation.faithfulness import Faithfulness
from vitkit.explanation.heatmap import COLORMAP, PIXELATED_BELOW, color_range, overlay, rescale, to_pillow
from vitkit.explanation.model_stats import PositionSimilarity
from vitkit.explanation.result import Explanation
from vitkit.inference.image_inputs import SourceImages

GREY = "#666666"
INCHES = 2.5  # the side of one image
PAIRS_PER_ROW = 3

# The Okabe–Ito colours, with dashes so that lines differ without colour
_LINES = [(BLUE, "-"), (VERMILION, "-"), ("#009E73", "--"), ("#CC79A7", "-."), ("#56B4E9", "--"), ("#999999", ":")]
_CURVES = {
    "deletion": ("deletion: an early fall is better", "share of patches removed"),
    "insertion": ("insertion: an early rise is better", "share of patches restored"),
}


def plot_maps(explanation: Explanation, smooth: bool = True) -> Figure:
    """Draw each image, and next to it the same image with its map; pixels outside the model's crop are faded."""
    count = len(explanation)
    across = min(math.ceil(math.sqrt(count)), PAIRS_PER_ROW)
    frames = map(_visible, explanation.images.sizes, explanation.regions)
    aspects = [(bottom - top) / (right - left) for left, top, right, bottom in frames]
    tall = [max(aspects[i : i + across]) for i in range(0, count, across)]
    figure = Figure(figsize=(across * (2 * INCHES + 0.9), sum(INCHES * t + 0.45 for t in tall)))
    figure.set_layout_engine("constrained", wspace=0.03, hspace=0.06)
    grid = figure.subplots(len(tall), 2 * across, squeeze=False, height_ratios=tall)
    for axes in grid.flat:
        axes.set_axis_off()
    for i in range(count):
        left, right = grid.reshape(-1, 2)[i]
        _draw_image(left, explanation.images, i)
        _draw_overlay(right, explanation, i, smooth)
        left.set_title(_file_name(explanation.images.names[i]), fontsize=8, loc="left")
        right.set_title(_prediction(explanation, i), fontsize=8, loc="left")
    return figure


def plot_heads(maps: np.ndarray, title: str = "") -> Figure:
    """Draw maps (layers, heads, gh, gw): a row per layer, a column per head, all on one colour scale."""
    layers, heads = maps.shape[:2]
    maps = maps * maps[0, 0].size
    figure = Figure(figsize=(0.75 * heads + 1.5, 0.75 * layers + 0.6), layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False)
    norm = Normalize(0, float(np.quantile(maps, 0.99)))
    for (layer, head), axes in np.ndenumerate(grid):
        shown = _bare(axes).imshow(maps[layer, head], cmap=COLORMAP, norm=norm)
        if head == 0:
            axes.set_ylabel(f"layer {layer}", fontsize=7, color=GREY)
        if layer == 0:
            axes.set_title(f"head {head}", fontsize=7, color=GREY)
    add_colorbar(figure, shown, "attention, × uniform attention", ax=grid, shrink=0.6, aspect=30, extend="max")
    figure.suptitle(literal(title), fontsize=8)
    return figure


def plot_faithfulness(found: Sequence[Faithfulness]) -> Figure:
    """Draw the deletion and insertion curves of each method, averaged over the images."""
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    for axes, (kind, (title, x_name)) in zip(figure.subplots(1, 2, sharey=True), _CURVES.items(), strict=True):
        for f, (colour, style) in zip(found, _LINES * 2, strict=False):
            area = getattr(f.curves, f"{kind}_area").mean()
            axes.plot(
                f.curves.fractions, getattr(f.curves, kind).mean(axis=0), style, color=colour, linewidth=1.6,
                label=f"{f.method} {area:.3f}",
            )  # fmt: skip
        axes.set(xlim=(0, 1), ylim=(0, None), xlabel=x_name)
        axes.set_title(title, fontsize=9, loc="left")
        _line_chart(axes)
        axes.legend(fontsize=7, frameon=False, title="area", title_fontsize=7, alignment="left")
    figure.axes[0].set_ylabel("probability of the class")
    return figure


def plot_filters(components: np.ndarray, share: np.ndarray) -> Figure:
    """Draw the principal components of the patch-embedding filters, each on its own scale, the largest first."""
    across = min(len(components), 7)
    down = -(-len(components) // across)
    figure = Figure(figsize=(0.8 * across, 0.8 * down + 0.45), layout="constrained")
    for i, axes in enumerate(figure.subplots(down, across, squeeze=False).flat):
        axes.set_axis_off()
        if i < len(components):
            image = rescale(components[i])
            axes.imshow(image if image.shape[-1] == 3 else image[..., 0], cmap="gray", interpolation="nearest")
    figure.suptitle(
        f"Patch-embedding filters: the first {len(components)} principal components\n"
        f"explain {share.sum():.0%} of the variance",
        fontsize=8,
    )
    return figure


def plot_position_similarity(similarity: PositionSimilarity) -> Figure:
    """Draw the similarity maps of evenly spaced patches, each where its patch lies in the image."""
    rows, columns, maps = similarity.sample()
    figure = Figure(figsize=(0.62 * len(columns) + 1.2, 0.62 * len(rows) + 0.9), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for (i, j), axes in np.ndenumerate(grid):
        shown = _bare(axes).imshow(maps[i, j], cmap="viridis", vmin=-1, vmax=1)
        if j == 0:
            axes.set_ylabel(str(rows[i]), fontsize=7, color=GREY)
        if i == len(rows) - 1:
            axes.set_xlabel(str(columns[j]), fontsize=7, color=GREY)
    add_colorbar(figure, shown, ax=grid, shrink=0.8, aspect=30)
    figure.suptitle(similarity.description, fontsize=8)
    figure.supxlabel("patch column", fontsize=7)
    figure.supylabel("patch row", fontsize=7)
    return figure


def plot_attention_distance(values: np.ndarray, diagonal: float, images: int) -> Figure:
    """Draw the mean attention distance (layers, heads) in pixels; `diagonal` is the image's."""
    layers, heads = values.shape
    figure = Figure(figsize=(4.8, 3.3), layout="constrained")
    axes = figure.add_subplot()
    depth = np.repeat(np.arange(layers), heads)
    axes.plot(depth, values.ravel(), "o", color=BLUE, alpha=0.6, markersize=4, markeredgewidth=0, label="one head")
    axes.plot(np.arange(layers), values.mean(axis=1), color=VERMILION, linewidth=1.5, label="layer mean")
    axes.set(xlabel="layer", ylabel="mean attention distance, pixels", ylim=(0, max(values.max() * 1.1, diagonal / 2)))
    axes.set_title(f"Mean attention distance per head ({images} image{'s' * (images != 1)})", fontsize=9, loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _line_chart(axes)
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    return figure


def plot_tokens(images: SourceImages, colours: np.ndarray, norms: np.ndarray) -> Figure:
    """Draw a row per image: the crop that the model received, its patch features as colours, its token norms."""
    count = len(norms)
    figure = Figure(figsize=(3 * INCHES * 0.8 + 0.7, count * INCHES * 0.8 + 0.35), layout="constrained")
    grid = figure.subplots(count, 3, squeeze=False)
    for i in range(count):
        left, top, right, bottom = images.regions[i]
        crop, features, lengths = map(_bare, grid[i])
        _draw_image(crop, images, i, frame=False)
        crop.set(xlim=(left, right), ylim=(bottom, top))
        features.set_box_aspect((bottom - top) / (right - left))
        lengths.set_box_aspect((bottom - top) / (right - left))
        features.imshow(colours[i], aspect="auto", interpolation="nearest")
        shown = lengths.imshow(norms[i], aspect="auto", cmap="viridis", interpolation="nearest")
        add_colorbar(figure, shown, ax=lengths, shrink=0.8, aspect=22, pad=0.02)
    for axes, title in zip(grid[0], ("model input", "patch features (PCA)", "token norms"), strict=True):
        axes.set_title(title, fontsize=8, loc="left")
    return figure


def _draw_image(axes: Axes, images: SourceImages, index: int, grey: bool = False, frame: bool = True) -> None:
    """Draw in pixels of the original, with a frame around the model's crop and everything else faded."""
    preview = images.previews[index]
    height, width = images.sizes[index]
    left, top, right, bottom = region = images.regions[index]
    flat = preview.astype(np.float64).mean(axis=2) if grey or preview.shape[2] == 1 else preview
    axes.imshow(
        flat, cmap="gray", vmin=0, vmax=255, extent=(0, width, height, 0),
        interpolation="nearest" if max(height, width) < PIXELATED_BELOW else "antialiased",
    )  # fmt: skip
    x_low, y_low, x_high, y_high = _visible((height, width), region)
    axes.set(xlim=(x_low, x_high), ylim=(y_high, y_low))
    if frame and tuple(region) != (0, 0, width, height):
        for box in _outside(region, (height, width)):
            axes.add_patch(Rectangle(*box, facecolor="white", alpha=0.6, linewidth=0))
        size = right - left, bottom - top
        outline = Rectangle((left, top), *size, fill=False, edgecolor=GREY, linewidth=0.8, clip_on=False)
        axes.add_patch(outline)


def _draw_overlay(axes: Axes, explanation: Explanation, index: int, smooth: bool) -> None:
    """Draw the map over the crop that the model received, padding included, and the scale of its colours.

    A map without negative values is drawn as multiples of its mean, which do not depend on the number of patches.
    """
    images, values, unit = explanation.images, explanation.maps[index], explanation.unit
    if values.min() >= 0 and values.mean() > 0:
        values, unit = values / values.mean(), f"{unit}, × its mean"
    _draw_image(axes, images, index, grey=True)
    limits = axes.get_xlim(), axes.get_ylim()
    left, top, right, bottom = explanation.regions[index]
    axes.imshow(overlay(_crop(images, index), values, smooth=smooth), extent=(left, right, bottom, top))
    axes.set(xlim=limits[0], ylim=limits[1])
    shown = ScalarMappable(Normalize(*color_range(values)), COLORMAP)
    shown.set_array(values)
    add_colorbar(axes.figure, shown, unit, cax=axes.inset_axes((1.03, 0, 0.035, 1)))


def _crop(images: SourceImages, index: int) -> np.ndarray:
    """Return the preview's pixels of the model's crop; padding is white."""
    preview = to_pillow(images.previews[index])
    scale = preview.width / images.sizes[index][1]
    left, top, right, bottom = (round(edge * scale) for edge in images.regions[index])
    crop = Image.new(preview.mode, (max(right - left, 1), max(bottom - top, 1)), "white")
    crop.paste(preview, (-left, -top))
    return np.asarray(crop)


def _prediction(explanation: Explanation, index: int) -> str:
    label = textwrap.shorten(literal(explanation.labels[index].split(",")[0]), 26, placeholder="…")
    return f"{explanation.method}: {label}, {explanation.scores[index]:.0%}" if label else explanation.method


def _file_name(path: str) -> str:
    """Return the last part of a path, as much of it as fits above an image."""
    name = literal(path.replace("\\", "/").rsplit("/", 1)[-1])
    return name if len(name) <= 30 else f"…{name[-29:]}"


def _visible(size: Sequence[float], region: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the box that is drawn: the original image, and the padding that the model received around it."""
    return min(region[0], 0), min(region[1], 0), max(region[2], size[1]), max(region[3], size[0])


def _outside(region: Sequence[float], size: Sequence[float]) -> list[tuple[tuple[float, float], float, float]]:
    """Return the parts of an image outside the region, as (corner, width, height)."""
    (left, top, right, bottom), (height, width) = region, size
    upper, lower = max(top, 0.0), min(bottom, height)
    parts = [
        ((0.0, 0.0), width, top),
        ((0.0, bottom), width, height - bottom),
        ((0.0, upper), left, lower - upper),
        ((right, upper), width - right, lower - upper),
    ]
    return [part for part in parts if part[1] > 0 and part[2] > 0]


def _bare(axes: Axes) -> Axes:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes


def _line_chart(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=PALE_GREY, linewidth=0.6)
    axes.tick_params(labelsize=8)

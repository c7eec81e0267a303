"""The model's own pictures, drawn. As in `draw`, figures belong to nobody and colours read without colour vision."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitkit.explanation.model_stats import Similarity
from vitkit.explanation.plots import GREY, INCHES
from vitkit.inference.image_inputs import SourceImages

SHOWN = 7  # positions on a side of the similarity picture, as in the paper


def filters(components: np.ndarray, share: np.ndarray) -> Figure:
    """Each component on its own scale, the largest first."""
    across = min(len(components), 7)
    down = -(-len(components) // across)
    figure = Figure(figsize=(0.8 * across, 0.8 * down + 0.45), layout="constrained")
    for i, axes in enumerate(figure.subplots(down, across, squeeze=False).flat):
        axes.set_axis_off()
        if i < len(components):
            low, high = components[i].min(), components[i].max()
            picture = (components[i] - low) / max(high - low, 1e-12)
            axes.imshow(picture if picture.shape[-1] == 3 else picture[..., 0], cmap="gray", interpolation="nearest")
    figure.suptitle(
        f"Patch-embedding filters: the first {len(components)} principal components\n"
        f"hold {share.sum():.0%} of the variance",
        fontsize=8,
    )
    return figure


def similarity(found: Similarity) -> Figure:
    """For some of the positions, evenly spaced, how alike all others are; each map lies where its position does."""
    rows, columns = (
        np.unique(np.linspace(0, n - 1, min(n, SHOWN)).round().astype(int)) for n in found.values.shape[:2]
    )
    figure = Figure(figsize=(0.62 * len(columns) + 1.2, 0.62 * len(rows) + 0.9), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes = grid[i, j]
            shown = axes.imshow(found.values[row, column], cmap="viridis", vmin=-1, vmax=1)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if j == 0:
                axes.set_ylabel(str(row), fontsize=7, color=GREY)
            if i == len(rows) - 1:
                axes.set_xlabel(str(column), fontsize=7, color=GREY)
    bar = figure.colorbar(shown, ax=grid, shrink=0.8, aspect=30)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)
    figure.suptitle(found.about[0].upper() + found.about[1:], fontsize=8)
    figure.supxlabel("column of the patch", fontsize=7)
    figure.supylabel("row of the patch", fontsize=7)
    return figure


def distances(values: np.ndarray, longest: float, images: int) -> Figure:
    """(layers, heads), in pixels; `longest` is the image's diagonal."""
    layers, heads = values.shape
    figure = Figure(figsize=(4.8, 3.3), layout="constrained")
    axes = figure.add_subplot()
    depth = np.repeat(np.arange(layers), heads)
    axes.plot(depth, values.ravel(), "o", color="#0072B2", alpha=0.6, markersize=4, markeredgewidth=0, label="one head")
    axes.plot(np.arange(layers), values.mean(axis=1), color="#D55E00", linewidth=1.5, label="mean of the layer")
    axes.set(xlabel="layer", ylabel="mean attention distance, pixels", ylim=(0, max(values.max() * 1.1, longest / 2)))
    axes.set_title(f"How far each head looks ({images} image{'s' * (images != 1)})", fontsize=9, loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    return figure


def tokens(images: SourceImages, colours: np.ndarray, norms: np.ndarray) -> Figure:
    """A row per image: the part that the model saw, the colours of its patch features, the length of its tokens."""
    count = len(norms)
    figure = Figure(figsize=(3 * INCHES * 0.8 + 0.7, count * INCHES * 0.8 + 0.35), layout="constrained")
    grid = figure.subplots(count, 3, squeeze=False)
    for i in range(count):
        height, width = images.sizes[i]
        left, top, right, bottom = images.regions[i]
        picture = images.previews[i]
        for axes in grid[i]:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        grid[i, 0].imshow(
            picture if picture.shape[2] == 3 else picture[..., 0], cmap="gray", vmin=0, vmax=255,
            extent=(0, width, height, 0),
        )  # fmt: skip
        grid[i, 0].set(xlim=(left, right), ylim=(bottom, top))
        for axes in grid[i, 1:]:
            axes.set_box_aspect((bottom - top) / (right - left))
        grid[i, 1].imshow(colours[i], aspect="auto", interpolation="nearest")
        shown = grid[i, 2].imshow(norms[i], aspect="auto", cmap="viridis", interpolation="nearest")
        bar = figure.colorbar(shown, ax=grid[i, 2], shrink=0.8, aspect=22, pad=0.02)
        bar.ax.tick_params(labelsize=7)
        bar.outline.set_visible(False)
    for axes, title in zip(grid[0], ("as the model saw it", "features, 3 components", "length of tokens"), strict=True):
        axes.set_title(title, fontsize=8, loc="left")
    return figure

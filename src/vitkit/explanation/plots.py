"""Explanations as pictures: each map over the photograph it came from, where it belongs in it.

Figures belong to nobody: no pyplot, nothing to close. `figure.savefig` writes PNG, SVG or PDF. The colours grow in
lightness alone with the value, so that they read in grey and by all kinds of colour vision.
"""

import itertools
import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from vitkit.explanation.faithfulness import Faithfulness
from vitkit.explanation.result import Explanation

COLOURS = "plasma"  # perceptually uniform
GREY = "#666666"
INCHES = 2.5  # the side of one photograph
PAIRS_IN_A_ROW = 3
OPACITY = 0.55


def sheet(explanation: Explanation, smooth: bool = True) -> Figure:
    """Each photograph, and beside it the same with its map; what the model did not see is dimmed."""
    count = len(explanation)
    across = min(math.ceil(math.sqrt(count)), PAIRS_IN_A_ROW)
    places = map(_extent, explanation.images.sizes, explanation.regions)
    shapes = [(bottom - top) / (right - left) for left, top, right, bottom in places]
    tall = [max(shapes[i : i + across]) for i in range(0, count, across)]
    figure = Figure(figsize=(across * (2 * INCHES + 0.9), sum(INCHES * t + 0.45 for t in tall)))
    figure.set_layout_engine("constrained", wspace=0.03, hspace=0.06)
    grid = figure.subplots(len(tall), 2 * across, squeeze=False, height_ratios=tall)
    for axes in grid.flat:
        axes.set_axis_off()
    for i in range(count):
        left, right = grid[i // across, 2 * (i % across)], grid[i // across, 2 * (i % across) + 1]
        photograph(left, explanation, i)
        shown = overlay(right, explanation, i, smooth)
        left.set_title(_short(explanation.images.names[i]), fontsize=8, loc="left")
        right.set_title(_verdict(explanation, i), fontsize=8, loc="left")
        bar = figure.colorbar(shown, cax=right.inset_axes((1.03, 0, 0.035, 1)))
        bar.set_label(legend(explanation, i), fontsize=7)
        bar.ax.tick_params(labelsize=7)
        bar.outline.set_visible(False)
    return figure


def photograph(axes: Axes, explanation: Explanation, index: int, grey: bool = False) -> None:
    """In the pixels of the original, with a frame around what the model saw."""
    picture = explanation.images.previews[index]
    height, width = explanation.images.sizes[index]
    left, top, right, bottom = explanation.regions[index]
    flat = picture.astype(np.float64).mean(axis=2) if grey or picture.shape[2] == 1 else picture
    axes.imshow(
        flat, cmap="gray", vmin=0, vmax=255, extent=(0, width, height, 0),
        interpolation="nearest" if max(height, width) < 64 else "antialiased",
    )  # fmt: skip
    least_x, least_y, most_x, most_y = _extent((height, width), (left, top, right, bottom))
    axes.set(xlim=(least_x, most_x), ylim=(most_y, least_y))
    if (left, top, right, bottom) != (0, 0, width, height):
        for box in _outside((left, top, right, bottom), (height, width)):
            axes.add_patch(Rectangle(*box, facecolor="white", alpha=0.6, linewidth=0))
        frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=GREY, linewidth=0.8)
        frame.set_clip_on(False)
        axes.add_patch(frame)


def overlay(axes: Axes, explanation: Explanation, index: int, smooth: bool = True) -> AxesImage:
    """The map over the photograph in grey, at its place: what was cropped away has none, what was padded has."""
    photograph(axes, explanation, index, grey=True)
    values = times_mean(explanation.maps[index])
    left, top, right, bottom = explanation.regions[index]
    limits = axes.get_xlim(), axes.get_ylim()
    shown = axes.imshow(
        values, cmap=COLOURS, alpha=OPACITY, extent=(left, right, bottom, top), norm=scale(values),
        interpolation="bicubic" if smooth else "nearest",
    )  # fmt: skip
    axes.set(xlim=limits[0], ylim=limits[1])
    return shown


def times_mean(values: np.ndarray) -> np.ndarray:
    """A map of shares as multiples of an even share, which reads alike for any number of patches."""
    return values / values.mean() if _are_shares(values) else values


def _are_shares(values: np.ndarray) -> bool:
    return bool(values.min() >= 0 and values.mean() > 0)


def scale(values: np.ndarray) -> Normalize:
    """From 0, or the least where that is above; what speaks against the class is as dark as what does not matter."""
    low = max(float(values.min()), 0.0)
    return Normalize(low, max(float(values.max()), low + 1e-12))


def legend(explanation: Explanation, index: int) -> str:
    return f"{explanation.unit}, × its mean" if _are_shares(explanation.maps[index]) else explanation.unit


def head_grid(maps: np.ndarray, title: str = "") -> Figure:
    """(layers, heads, gh, gw): a row per layer and a column per head, all on one scale, in even shares."""
    layers, heads = maps.shape[:2]
    patches = maps.shape[2] * maps.shape[3]
    figure = Figure(figsize=(0.75 * heads + 1.5, 0.75 * layers + 0.6), layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False)
    norm = Normalize(0, float(np.quantile(maps * patches, 0.99)))
    for layer, head in itertools.product(range(layers), range(heads)):
        axes: Axes = grid[layer, head]
        shown = axes.imshow(maps[layer, head] * patches, cmap=COLOURS, norm=norm)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        if head == 0:
            axes.set_ylabel(f"layer {layer}", fontsize=7, color=GREY)
        if layer == 0:
            axes.set_title(f"head {head}", fontsize=7, color=GREY)
    bar = figure.colorbar(shown, ax=grid, shrink=0.6, aspect=30, extend="max")
    bar.set_label("attention, × an even share", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    figure.suptitle(title, fontsize=8)
    return figure


def curves(found: Sequence[Faithfulness]) -> Figure:
    """Deletion and insertion, the mean over images of each method."""
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("deletion", "insertion"), strict=True):
        for f, (colour, style) in zip(found, _LINES * 2, strict=False):
            area = getattr(f.curves, f"{kind}_area").mean()
            axes.plot(
                f.curves.fractions, getattr(f.curves, kind).mean(axis=0), style, color=colour, linewidth=1.6,
                label=f"{f.method} {area:.3f}",
            )  # fmt: skip
        axes.set(xlim=(0, 1), ylim=(0, None), xlabel=_AXES[kind])
        axes.set_title(f"{kind}: {_BETTER[kind]}", fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.tick_params(labelsize=8)
        axes.legend(fontsize=7, frameon=False, title="area", title_fontsize=7, alignment="left")
    figure.axes[0].set_ylabel("probability of the class")
    return figure


# Okabe and Ito's colours, and dashes, so that they are told apart without colour too
_LINES = [("#0072B2", "-"), ("#D55E00", "-"), ("#009E73", "--"), ("#CC79A7", "-."), ("#56B4E9", "--"), ("#999999", ":")]
_AXES = {"deletion": "share of patches taken away", "insertion": "share of patches given back"}
_BETTER = {"deletion": "an early fall is better", "insertion": "an early rise is better"}


def _verdict(explanation: Explanation, index: int) -> str:
    label = textwrap.shorten(explanation.labels[index].split(",")[0].replace("$", r"\$"), 26, placeholder="…")
    answer = f"{label}, {explanation.scores[index]:.0%}" if label else ""
    return f"{explanation.method}: {answer}" if answer else explanation.method


def _short(name: str) -> str:
    """The end of a path, as much as fits over its picture."""
    name = name.replace("\\", "/").rsplit("/", 1)[-1].replace("$", r"\$")
    return name if len(name) <= 30 else f"…{name[-29:]}"


def _extent(size: Sequence[float], region: Sequence[float]) -> tuple[float, float, float, float]:
    """What is shown: the whole photograph, and the padding that the model saw beyond its edges."""
    return min(region[0], 0), min(region[1], 0), max(region[2], size[1]), max(region[3], size[0])


def _outside(region: Sequence[float], size: Sequence[float]) -> list[tuple[tuple[float, float], float, float]]:
    """The parts of a photograph that are not in the region, as (corner, width, height)."""
    (left, top, right, bottom), (height, width) = region, size
    parts = [
        ((0.0, 0.0), width, top),
        ((0.0, bottom), width, height - bottom),
        ((0.0, max(top, 0.0)), left, min(bottom, height) - max(top, 0.0)),
        ((right, max(top, 0.0)), width - right, min(bottom, height) - max(top, 0.0)),
    ]
    return [part for part in parts if part[1] > 0 and part[2] > 0]

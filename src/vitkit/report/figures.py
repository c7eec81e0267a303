"""Drawings of the report, with text and frames in a quiet grey."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

GREY = "#808790"
BLUE, ORANGE, GREEN = "#0072b2", "#e69f00", "#009e73"  # Okabe and Ito's colours: told apart by everyone


def curves(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss, accuracy, learning rate and pace over the epochs."""
    training = [m for m in metrics if "loss" in m]
    validation = [m for m in metrics if "val_top1" in m]
    figure = Figure(figsize=(9, 5.6), layout="constrained")
    loss, accuracy, rate, pace = figure.subplots(2, 2).flat
    _line(loss, training, "loss", BLUE, "training", smooth=True)
    _line(loss, validation, "val_loss", ORANGE, "validation")
    _line(accuracy, training, "accuracy", BLUE, "training", smooth=True, scale=100)
    _line(accuracy, validation, "val_top1", ORANGE, "validation", scale=100)
    _line(rate, training, "lr", GREEN, "")
    _line(pace, training, "images_per_s", GREEN, "")
    for axes, title in (
        (loss, "loss"),
        (accuracy, "accuracy, %"),
        (rate, "learning rate"),
        (pace, "images per second"),
    ):
        plain(axes, title)
        axes.set_xlabel("epoch", color=GREY)
    pace.set_ylim(bottom=0)
    for axes in (loss, accuracy):
        axes.legend(frameon=False, labelcolor=GREY)
    return figure


def _line(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    colour: str,
    label: str,
    smooth: bool = False,
    scale: float = 1,
) -> None:
    x = np.array([r["epoch"] for r in rows])
    y = scale * np.array([r[key] for r in rows])
    if smooth and len(y) > 20:
        axes.plot(x, y, color=colour, alpha=0.25, linewidth=1)
        y = _smooth(y, max(3, len(y) // 30))
    axes.plot(x, y, color=colour, linewidth=1.8, label=label, marker="o" if len(x) < 2 else None)


def _smooth(values: np.ndarray, width: int) -> np.ndarray:
    """A centred mean that uses what there is at the ends."""
    kernel = np.ones(width)
    return np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same")


def plain(axes: Axes, title: str) -> None:
    axes.set_title(title, color=GREY, fontsize=11, loc="left")
    axes.tick_params(colors=GREY, labelsize=9)
    axes.grid(color=GREY, alpha=0.2, linewidth=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)


def attention_sheet(
    pictures: Sequence[np.ndarray], maps: np.ndarray, titles: Sequence[str], right: Sequence[bool]
) -> Figure:
    """A row per image: the image, the attention averaged over heads laid over it, then every head by itself.

    `pictures` are (H, W, C) uint8, `maps` (images, heads, gh, gw). Within a row all maps share one colour scale.
    """
    heads = maps.shape[1]
    figure = Figure(figsize=(1.25 * (heads + 2), 1.42 * len(pictures)), layout="constrained")
    grid = np.atleast_2d(figure.subplots(len(pictures), heads + 2))
    for row, (picture, of_heads, title, ok) in enumerate(zip(pictures, maps, titles, right, strict=True)):
        shown = picture[..., :3] if picture.shape[-1] >= 3 else picture[..., 0]  # of many bands the first three
        extent = (0, shown.shape[1], shown.shape[0], 0)
        for column, axes in enumerate(grid[row]):
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_color(GREY)
            if column < 2:
                axes.imshow(shown, cmap="gray", vmin=0, vmax=255, extent=extent, interpolation="nearest")
            if column == 1:
                axes.imshow(of_heads.mean(0), cmap="magma", alpha=0.6, extent=extent, interpolation="bilinear")
            if column > 1:
                axes.imshow(of_heads[column - 2], cmap="magma", vmin=0, vmax=of_heads.max(), extent=extent)
        grid[row][0].set_ylabel(title, color=GREEN if ok else ORANGE, fontsize=8)
    for column, name in enumerate(["image", "mean of heads", *(f"head {h}" for h in range(heads))]):
        grid[0][column].set_title(name, color=GREY, fontsize=9)
    return figure

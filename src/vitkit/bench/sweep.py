"""The same contest at several batch and image sizes: how cost grows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitkit.bench.inference import inference
from vitkit.bench.training import training
from vitkit.model import ViT, create_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Setting:
    batch: int
    image_size: int = 0  # 0: the model's own


@dataclass
class Found:
    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def sweep(
    model: ViT, settings: Sequence[Setting], against: Sequence[str], train: bool, rounds: int, memory: bool
) -> Found:
    found = Found()
    for setting in settings:
        sized = _resized(model, setting.image_size)
        if train:
            rows, missing = training(sized.config, setting.batch, against, rounds, memory)
        else:
            rows, missing = inference(sized, setting.batch, against, rounds, memory)
        side = sized.config.image_size[0]
        found.rows += [{"batch": setting.batch, "image_size": side, **row.to_dict()} for row in rows]
        found.missing |= missing
    return found


def _resized(model: ViT, side: int) -> ViT:
    """Speed does not depend on the weights, so a model of another size may have new ones."""
    if side in (0, model.config.image_size[0]):
        return model
    return create_model(model.config.replace(image_size=side))


def draw(rows: Sequence[dict[str, Any]], path: str | Path) -> "Figure":
    """Images per second over whatever varies. On logarithmic axes a constant factor is a constant distance."""
    from matplotlib.figure import Figure

    axis = "image_size" if len({r["image_size"] for r in rows}) > 1 else "batch"
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    styles = ["-", "--", "-.", ":"]
    for i, name in enumerate(dict.fromkeys(r["name"] for r in rows)):
        line = [(r[axis], r["images_per_s"]) for r in rows if r["name"] == name]
        axes.plot(*zip(*line, strict=True), marker="o", linestyle=styles[i % len(styles)], label=name)
    ticks = sorted({r[axis] for r in rows})
    axes.set(xscale="log", yscale="log", xlabel="images at a time" if axis == "batch" else "side of the image, pixels")
    axes.set_xticks(ticks, labels=list(map(str, ticks)), minor=False)
    axes.minorticks_off()
    axes.set_ylabel("images per second")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    return figure

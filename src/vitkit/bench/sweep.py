"""Repeats a benchmark at several batch and image sizes, and plots the results."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitkit.bench.inference import bench_inference
from vitkit.bench.training import bench_training
from vitkit.model import ViT, create_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class SweepResult:
    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def run_sweep(
    model: ViT, points: Sequence[tuple[int, int]], against: Sequence[str], train: bool, rounds: int, memory: bool
) -> SweepResult:
    """Run the inference or training benchmark at each pair of batch size and image size (0: the model's own)."""
    found = SweepResult()
    for batch_size, image_size in points:
        is_own = image_size in (0, model.config.image_size[0])
        # A model of another size gets new weights: speed does not depend on them.
        sized = model if is_own else create_model(model.config.replace(image_size=image_size), model_class=type(model))
        if train:
            results, missing = bench_training(sized.config, batch_size, against, rounds, memory)
        else:
            results, missing = bench_inference(sized, batch_size, against, rounds, memory)
        side = sized.config.image_size[0]
        found.rows += [{"batch": batch_size, "image_size": side, **result.to_dict()} for result in results]
        found.missing |= missing
    return found


def plot_sweep(rows: Sequence[dict[str, Any]], path: str | Path) -> "Figure":
    """Plot images per second over batch size or image size, on logarithmic axes."""
    from matplotlib.figure import Figure

    axis = "image_size" if len({r["image_size"] for r in rows}) > 1 else "batch"
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    styles = ["-", "--", "-.", ":"]
    for i, name in enumerate(dict.fromkeys(r["name"] for r in rows)):
        line = [(r[axis], r["images_per_s"]) for r in rows if r["name"] == name]
        axes.plot(*zip(*line, strict=True), marker="o", linestyle=styles[i % len(styles)], label=name)
    ticks = sorted({r[axis] for r in rows})
    label = "batch size" if axis == "batch" else "image size, pixels"
    axes.set(xscale="log", yscale="log", xlabel=label, ylabel="images per second")
    axes.set_xticks(ticks, labels=list(map(str, ticks)), minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    return figure

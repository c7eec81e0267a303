"""Example images with their maps: the most confident mistakes, and images taken evenly from the held-out split."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
from torch import Tensor

from vitkit.errors import CorruptImageError
from vitkit.evaluation import Evaluation
from vitkit.explanation import DEFAULT_METHOD, METHODS, attention_map, describe_query, explain
from vitkit.explanation.heatmap import colorize, overlay
from vitkit.report.html import section, text
from vitkit.report.images import color_scale, tile
from vitkit.report.run_assets import RunAssets

MAX_EXAMPLES = 6
MAX_MISTAKES = 12
MAX_HEADS = 16

SCALE = f"<p>Colours of the maps: {color_scale('low', 'high')}. Each map has its own scale.</p>\n"


@dataclass(frozen=True)
class ExampleBatch:
    """Evaluated images as the model received them."""

    names: Sequence[str]
    pixels: np.ndarray  # (B, H, W, C) uint8
    batch: Tensor  # normalised
    labels: Sequence[int]
    predictions: Sequence[int]
    scores: Sequence[float]  # of the predictions

    def __len__(self) -> int:
        return len(self.names)


def mistakes_section(assets: RunAssets, evaluation: Evaluation) -> str:
    """Show the most confident mistakes, with the maps of the predicted class and of the label."""
    title = "Most confident mistakes"
    if not evaluation.mistakes:
        return section(title, text("No mistakes."))
    examples = read_examples(assets, evaluation, [m.index for m in evaluation.mistakes[:MAX_MISTAKES]])
    model = assets.model
    if model is None or not examples:
        return section(title, text(_why_none(assets)))
    maps = {
        kind: explain(model, examples.batch, DEFAULT_METHOD, target=list(classes)).maps
        for kind, classes in (("predicted", examples.predictions), ("label", examples.labels))
    }
    names = evaluation.predictions.class_names
    items = [
        _example(examples, i, names, [
            tile(overlay(examples.pixels[i], maps["predicted"][i]), f"predicted: {names[examples.predictions[i]]}"),
            tile(overlay(examples.pixels[i], maps["label"][i]), f"label: {names[examples.labels[i]]}"),
        ])
        for i in range(len(examples))
    ]  # fmt: skip
    about = (
        "Some of these labels may be wrong. Next to each image: the map of the predicted class and the map of the "
        f"label. Method {DEFAULT_METHOD}: {METHODS[DEFAULT_METHOD].description}."
    )
    return section(title, text(about), SCALE, f"<div class='examples'>{''.join(items)}</div>\n")


def explanations_section(assets: RunAssets, evaluation: Evaluation, *more: str) -> str:
    """Show images taken evenly from the split, with the attention of the last layer and the default map."""
    title, shown = "Explanations", min(MAX_EXAMPLES, evaluation.n)
    examples = read_examples(assets, evaluation, [i * evaluation.n // shown for i in range(shown)])
    model = assets.model
    if model is None or not examples:
        return section(title, text(_why_none(assets)))
    with torch.inference_mode():
        attention = attention_map(model, examples.batch).numpy()
    mean_attention = attention.mean(axis=1)
    maps = explain(model, examples.batch, DEFAULT_METHOD, target=list(examples.predictions)).maps
    names = evaluation.predictions.class_names
    items = [
        _example(examples, i, names, [
            tile(overlay(examples.pixels[i], mean_attention[i]), "attention", f"attention on {examples.names[i]}"),
            tile(overlay(examples.pixels[i], maps[i]), DEFAULT_METHOD, f"{DEFAULT_METHOD} on {examples.names[i]}"),
        ], _heads(attention[i]))
        for i in range(len(examples))
    ]  # fmt: skip
    about = (
        f"Held-out images. Attention of the last layer, {describe_query(model)}: exact softmax weights, as the mean "
        "of all heads and then per head on one scale. It shows where the model attends, for any class. "
        f"{DEFAULT_METHOD.capitalize()}: {METHODS[DEFAULT_METHOD].description}, for the predicted class."
    )
    return section(title, text(about), SCALE, f"<div class='examples'>{''.join(items)}</div>\n", *more)


def read_examples(assets: RunAssets, evaluation: Evaluation, wanted: Sequence[int]) -> ExampleBatch | None:
    """Return those of the wanted samples whose images are still in the data set under the same name."""
    split, predictions = assets.held_out, evaluation.predictions
    if split is None or assets.model is None or predictions.names is None:
        return None
    wanted_names = {predictions.names[i] for i in wanted}
    rows = {name: row for row in range(len(split)) if (name := split.images.name(row)) in wanted_names}
    kept, pixels = [], []
    for i in wanted:
        name = predictions.names[i]
        if name in rows:
            with suppress(CorruptImageError):
                pixels.append(assets.preprocess(split.images[rows[name]], name))
                kept.append(i)
    if not kept:
        return None
    stacked, samples = torch.stack(pixels), predictions.samples
    return ExampleBatch(
        names=[predictions.names[i] for i in kept],
        pixels=stacked.permute(0, 2, 3, 1).numpy(),
        batch=assets.preprocess.normalize(stacked),
        labels=predictions.labels[kept].tolist(),
        predictions=samples.predicted[kept].tolist(),
        scores=samples.confidence[kept].tolist(),
    )


def _example(examples: ExampleBatch, index: int, names: Sequence[str], views: Sequence[str], below: str = "") -> str:
    predicted, label = names[examples.predictions[index]], names[examples.labels[index]]
    correct = examples.predictions[index] == examples.labels[index]
    outcome = f"✓ {predicted}" if correct else f"✗ predicted {predicted}, label {label}"
    original = tile(examples.pixels[index], "model input", examples.names[index])
    return (
        f"<figure class='example'><div class='views'>{original}{''.join(views)}</div>{below}<figcaption>"
        f"<span class='outcome {'right' if correct else 'wrong'}'>{escape(outcome)}</span>, "
        f"confidence {examples.scores[index]:.1%}<br>{escape(examples.names[index])}</figcaption></figure>\n"
    )


def _heads(maps: np.ndarray) -> str:
    """Draw one pixel per patch, all heads on one scale."""
    shown = "".join(tile(colorize(m, 0.0, float(maps.max())), f"head {h}") for h, m in enumerate(maps[:MAX_HEADS]))
    return f"<div class='heads'>{shown}</div>"


def _why_none(assets: RunAssets) -> str:
    if assets.data is None:
        return f"The data set could not be opened: {assets.data_error}"
    return "None of the evaluated images is in the data set any more: the data set changed after the run."

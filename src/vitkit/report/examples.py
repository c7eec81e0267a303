"""Single images: what the model said of them, and which patches made it say so."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
from torch import Tensor

from vitkit.errors import CorruptImageError
from vitkit.evaluation import Evaluation
from vitkit.explanation import DEFAULT, METHODS, attention_map, describe_query, explain
from vitkit.report.html import section, text
from vitkit.report.images import heat, overlay, ramp, tile
from vitkit.report.run_assets import Subject

EXAMPLES = 6
MISTAKES = 12
HEADS = 16  # shown of a layer

RAMP = f"<p>Maps go from {ramp('little', 'much')}, each on a scale of its own.</p>\n"


@dataclass(frozen=True)
class Cases:
    """Images that were judged, as the model takes them."""

    names: Sequence[str]
    pixels: np.ndarray  # (B, H, W, C) uint8
    batch: Tensor  # normalised
    truth: Sequence[int]
    answer: Sequence[int]
    score: Sequence[float]  # of the answer

    def __len__(self) -> int:
        return len(self.names)


def mistakes(subject: Subject, evaluation: Evaluation) -> str:
    """The most confident ones, with the map of what was said and of what would have been right."""
    title = "Most confident mistakes"
    if not evaluation.mistakes:
        return section(title, text("There is no mistake."))
    cases = read_cases(subject, evaluation, [m.index for m in evaluation.mistakes[:MISTAKES]])
    model = subject.model
    if model is None or not cases:
        return section(title, text(_why_none(subject)))
    said = explain(model, cases.batch, DEFAULT, target=list(cases.answer)).maps
    right = explain(model, cases.batch, DEFAULT, target=list(cases.truth)).maps
    names = model.info.class_names
    items = [
        _case(cases, i, names, [
            tile(cases.pixels[i], "seen", cases.names[i]),
            tile(overlay(cases.pixels[i], said[i]), f"for “{names[cases.answer[i]]}”"),
            tile(overlay(cases.pixels[i], right[i]), f"for “{names[cases.truth[i]]}”"),
        ])
        for i in range(len(cases))
    ]  # fmt: skip
    about = (
        "A label that is wrong is often among them. Beside each image: which patches speak for the answer, and which "
        f"for the class it belongs to ({DEFAULT}: {METHODS[DEFAULT].about})."
    )
    return section(title, text(about), RAMP, f"<div class='cases'>{''.join(items)}</div>\n")


def examples(subject: Subject, evaluation: Evaluation, *more: str) -> str:
    """Evenly taken from the split, right or wrong, with the exact attention of the last layer."""
    title, shown = "What it looks at", min(EXAMPLES, evaluation.n)
    cases = read_cases(subject, evaluation, [i * evaluation.n // shown for i in range(shown)])
    model = subject.model
    if model is None or not cases:
        return section(title, text(_why_none(subject)))
    with torch.inference_mode():
        maps = attention_map(model, cases.batch).numpy()
    why = explain(model, cases.batch, DEFAULT, target=list(cases.answer)).maps
    names = model.info.class_names
    items = [
        _case(cases, i, names, [
            tile(cases.pixels[i], "seen", cases.names[i]),
            tile(overlay(cases.pixels[i], maps[i].mean(axis=0)), "attention", f"attention on {cases.names[i]}"),
            tile(overlay(cases.pixels[i], why[i]), DEFAULT, f"{DEFAULT} on {cases.names[i]}"),
        ], _heads(maps[i]))
        for i in range(len(cases))
    ]  # fmt: skip
    about = (
        f"Images it did not learn from. Attention is that of the last layer, {describe_query(model)}: exact softmax "
        "weights, averaged over the heads and then head by head on one scale. "
        f"{DEFAULT.capitalize()}: {METHODS[DEFAULT].about}; attention alone says where, not what for."
    )
    return section(title, text(about), RAMP, f"<div class='cases'>{''.join(items)}</div>\n", *more)


def read_cases(subject: Subject, evaluation: Evaluation, wanted: Sequence[int]) -> Cases | None:
    """Those of the judged samples that can still be found in the data by their names."""
    split, predictions = subject.held_out, evaluation.predictions
    if split is None or subject.model is None or predictions.names is None:
        return None
    asked = {predictions.names[i] for i in wanted}
    places = {name: k for k in range(len(split)) if (name := split.images.name(k)) in asked}
    kept, pixels = [], []
    for i in wanted:
        name = predictions.names[i]
        if name in places:
            try:
                pixels.append(subject.preprocess(split.images[places[name]], name))
            except CorruptImageError:
                continue
            kept.append(i)
    if not kept:
        return None
    stacked, samples = torch.stack(pixels), predictions.samples
    return Cases(
        names=[predictions.names[i] for i in kept],
        pixels=stacked.permute(0, 2, 3, 1).numpy(),
        batch=subject.preprocess.normalize(stacked),
        truth=predictions.labels[kept].tolist(),
        answer=samples.predicted[kept].tolist(),
        score=samples.confidence[kept].tolist(),
    )


def _case(cases: Cases, index: int, names: Sequence[str], views: Sequence[str], below: str = "") -> str:
    is_right = cases.truth[index] == cases.answer[index]
    said, truth = names[cases.answer[index]], names[cases.truth[index]]
    verdict = f"✓ {said}" if is_right else f"✗ said {said}, is {truth}"
    kind = "right" if is_right else "wrong"
    return (
        f"<figure class='case'><div class='views'>{''.join(views)}</div>{below}<figcaption>"
        f"<span class='verdict {kind}'>{escape(verdict)}</span>, {cases.score[index]:.1%} sure<br>"
        f"{escape(cases.names[index])}</figcaption></figure>\n"
    )


def _heads(maps: np.ndarray) -> str:
    """A pixel per patch."""
    shown = "".join(tile(heat(m, 0.0, float(maps.max())), f"head {h}") for h, m in enumerate(maps[:HEADS]))
    return f"<div class='heads'>{shown}</div>"


def _why_none(subject: Subject) -> str:
    if subject.data is None:
        return f"The data could not be opened again: {subject.trouble}"
    return "None of the images that were judged is in the data any more: it has changed since the run."

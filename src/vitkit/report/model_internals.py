"""The model's own pictures, after figure 7 of the ViT paper, and its tokens on images it did not learn from."""

import math

import numpy as np

from vitkit.evaluation import Evaluation
from vitkit.explanation.model_stats import (
    Similarity,
    attention_distance,
    feature_colours,
    patch_filters,
    position_similarity,
    token_norms,
)
from vitkit.model import ViT
from vitkit.model.summary import summarize
from vitkit.report.charts import HEIGHT, LETTER, WIDTH, Frame
from vitkit.report.examples import Cases, read_cases
from vitkit.report.html import details, figure, heading, section, table, text
from vitkit.report.images import heat, mosaic, ramp, tile, tiles
from vitkit.report.run_assets import Subject

IMAGES = 16  # over which distances are averaged
TOKENS = 4  # images whose tokens are shown
FILTERS = 28  # as many as the paper shows
POSITIONS = 7  # on a side of the picture of similarities, at most


def inside(subject: Subject, evaluation: Evaluation | None) -> str:
    model = subject.model
    assert model is not None
    cases = None
    if evaluation is not None:
        shown = min(IMAGES, evaluation.n)
        cases = read_cases(subject, evaluation, [i * evaluation.n // shown for i in range(shown)])
    return section(
        "The model", _filters(model), _positions(model), _distances(model, cases), _tokens(model, cases), _layers(model)
    )


def _filters(model: ViT) -> str:
    components, share = patch_filters(model, FILTERS)
    shown = [
        tile(np.rint(255 * _stretched(c)).astype(np.uint8), f"{s:.0%}", f"component {i}, {s:.1%} of the variance")
        for i, (c, s) in enumerate(zip(components, share, strict=True))
    ]
    about = (
        f"The first {len(shown)} principal components of the filters that make a token of a patch, each with its share "
        "of their variance. A trained model shows smooth patterns first, as of a low-dimensional basis of patches."
    )
    return heading("Filters of the patch embedding") + text(about) + tiles(shown)


def _positions(model: ViT) -> str:
    found = position_similarity(model)
    title = heading("Similarity of positions")
    if found is None:
        return title + text("The model knows no positions.")
    caption = (
        f"{found.about[0].upper()}{found.about[1:]}: each small map lies where its patch does and shows how alike all "
        "others are to it. A model that has learned the image's geometry is brightest around itself."
    )
    drawing = mosaic(_similarities(found), found.about) + f"<p>{ramp('−1', '1', 'viridis')}</p>"
    return title + figure(drawing, caption)


def _similarities(found: Similarity) -> np.ndarray:
    """(R, C, gh, gw, 3) uint8, of evenly spaced patches."""
    rows, columns = (
        np.unique(np.linspace(0, n - 1, min(n, POSITIONS)).round().astype(int)) for n in found.values.shape[:2]
    )
    return heat(found.values[np.ix_(rows, columns)], -1.0, 1.0, "viridis")


def _distances(model: ViT, cases: Cases | None) -> str:
    """A dot per head; the line is the mean of the layer."""
    title = heading("How far each head looks")
    if cases is None:
        return title + text("Without the data there are no images to measure it on.")
    values = attention_distance(model, cases.batch)
    layers, longest = len(values), math.hypot(*model.config.image_size)
    name = "mean of heads"
    room = 10 + LETTER * len(name)
    frame = Frame((0, max(layers - 1, 1)), (0, max(float(values.max()) * 1.1, longest / 2)), right=room)
    dots = "".join(
        f"<circle class='s0' cx='{frame.across(layer):.1f}' cy='{frame.down(v):.1f}' r='3' fill-opacity='.6'>"
        f"<title>layer {layer}, head {head}: {v:.2f} pixels</title></circle>"
        for layer, row in enumerate(values)
        for head, v in enumerate(row)
    )
    mean = [(float(i), float(v)) for i, v in enumerate(values.mean(axis=1))]
    label = f"<text class='name s1' x='{WIDTH - room + 8:.0f}' y='{frame.down(mean[-1][1]) + 4:.1f}'>{name}</text>"
    drawing = (
        f"<svg width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='mean attention "
        f"distance per layer and head'>{frame.axes('layer', whole=True)}{dots}"
        f"<path class='line s1' d='{frame.path(mean)}'/>{label}</svg>"
    )
    caption = (
        f"Mean distance, in pixels, between a patch and what it attends to, over {len(cases)} images; a dot is a head. "
        f"The image's diagonal is {longest:.0f} pixels. Heads near 0 look at their neighbourhood, as convolutions do."
    )
    return title + figure(drawing, caption)


def _tokens(model: ViT, cases: Cases | None) -> str:
    if cases is None:
        return ""
    colours, norms = feature_colours(model, cases.batch), token_norms(model, cases.batch)
    items = []
    for i in range(min(TOKENS, len(cases))):
        name = cases.names[i]
        views = [
            tile(cases.pixels[i], "seen", name),
            tile(np.rint(255 * colours[i]).astype(np.uint8), "features", f"patch features of {name} as colours"),
            tile(
                heat(norms[i], colours="viridis"),
                f"{norms[i].min():.1f} to {norms[i].max():.1f}",
                f"token lengths of {name}",
            ),
        ]
        items.append(f"<figure class='case'><div class='views'>{''.join(views)}</div></figure>")
    about = (
        "The first three principal components of the patch features as red, green and blue, the same for all images; "
        "and the length of each token after the last block, where single bright patches would be outliers, which "
        "register tokens cure."
    )
    return heading("Its tokens") + text(about) + f"<div class='cases'>{''.join(items)}</div>\n"


def _layers(model: ViT) -> str:
    lines = [
        [r.path or "(model)", r.kind, " × ".join(map(str, r.shape[1:])), r.parameters, r.macs]
        for r in summarize(model.config, depth=2)
    ]
    return details("Layer by layer", table(["layer", "kind", "output", "parameters", "MACs"], lines, "Layers"))


def _stretched(values: np.ndarray) -> np.ndarray:
    low, high = float(values.min()), float(values.max())
    return (values - low) / max(high - low, 1e-12)

"""Internals of the model: filters, positions and attention distance (figure 7 of the ViT paper), and its tokens."""

import math

import numpy as np

from vitkit.evaluation import Evaluation
from vitkit.explanation import model_stats
from vitkit.explanation.heatmap import colorize, rescale
from vitkit.model import ViT
from vitkit.model.summary import summarize
from vitkit.report.charts import HEIGHT, LETTER_WIDTH, WIDTH, Frame
from vitkit.report.examples import ExampleBatch, read_examples
from vitkit.report.html import details, figure, heading, section, table, text
from vitkit.report.images import color_scale, mosaic, tile, tiles
from vitkit.report.run_assets import RunAssets

MAX_IMAGES = 16  # over which distances are averaged
MAX_TOKEN_IMAGES = 4
MAX_FILTERS = 28  # as in the paper


def model_section(assets: RunAssets, evaluation: Evaluation | None) -> str:
    model = assets.model
    assert model is not None
    examples = None
    if evaluation is not None:
        shown = min(MAX_IMAGES, evaluation.n)
        examples = read_examples(assets, evaluation, [i * evaluation.n // shown for i in range(shown)])
    parts = (_filters(model), _positions(model), _distances(model, examples), _tokens(model, examples), _layers(model))
    return section("Model internals", *parts)


def _filters(model: ViT) -> str:
    components, share = model_stats.patch_filters(model, MAX_FILTERS)
    shown = [
        tile(np.rint(255 * rescale(c)).astype(np.uint8), f"{s:.0%}", f"component {i}, {s:.1%} of the variance")
        for i, (c, s) in enumerate(zip(components, share, strict=True))
    ]
    about = (
        f"The first {len(shown)} principal components of the patch-embedding filters, each with its share of the "
        "variance. In a trained model the first components are smooth patterns."
    )
    return heading("Patch-embedding filters") + text(about) + tiles(shown)


def _positions(model: ViT) -> str:
    similarity = model_stats.position_similarity(model)
    title = heading("Position similarity")
    if similarity is None:
        return title + text("The model has no position information.")
    maps = mosaic(colorize(similarity.sample()[2], -1.0, 1.0, "viridis"), similarity.description)
    caption = (
        f"{similarity.description}. Each small map belongs to one patch, lies where this patch lies, and shows its "
        "similarity to all patches. If the model has learned the image geometry, nearby patches are most similar."
    )
    return title + figure(f"{maps}<p>{color_scale('−1', '1', 'viridis')}</p>", caption)


def _distances(model: ViT, examples: ExampleBatch | None) -> str:
    """Draw a dot per head and a line for the mean of each layer."""
    title = heading("Attention distance")
    if examples is None:
        return title + text("Not measured: the images are not available.")
    values = model_stats.attention_distance(model, examples.batch)
    layers, diagonal = len(values), math.hypot(*model.config.image_size)
    name = "mean of heads"
    right = 10 + LETTER_WIDTH * len(name)
    frame = Frame((0, max(layers - 1, 1)), (0, max(float(values.max()) * 1.1, diagonal / 2)), right)
    dots = "".join(
        f"<circle class='s0' cx='{frame.x_at(layer):.1f}' cy='{frame.y_at(v):.1f}' r='3' fill-opacity='.6'>"
        f"<title>layer {layer}, head {head}: {v:.2f} pixels</title></circle>"
        for layer, row in enumerate(values)
        for head, v in enumerate(row)
    )
    mean = [(float(i), float(v)) for i, v in enumerate(values.mean(axis=1))]
    label = f"<text class='name s1' x='{WIDTH - right + 8:.0f}' y='{frame.y_at(mean[-1][1]) + 4:.1f}'>{name}</text>"
    drawing = (
        f"<svg width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='mean attention "
        f"distance per layer and head'>{frame.axes('layer', integer=True)}{dots}"
        f"<path class='line s1' d='{frame.path(mean)}'/>{label}</svg>"
    )
    caption = (
        f"Mean distance in pixels between a patch and the patches it attends to, over {len(examples)} images. Each dot "
        f"is one head. The image diagonal is {diagonal:.0f} pixels. Heads near 0 attend locally, as a convolution does."
    )
    return title + figure(drawing, caption)


def _tokens(model: ViT, examples: ExampleBatch | None) -> str:
    if examples is None:
        return ""
    features = model_stats.feature_pca(model, examples.batch)
    norms = model_stats.token_norms(model, examples.batch)
    items = []
    for i in range(min(MAX_TOKEN_IMAGES, len(examples))):
        name, span = examples.names[i], f"norm {norms[i].min():.1f} to {norms[i].max():.1f}"
        views = [
            tile(examples.pixels[i], "model input", name),
            tile(np.rint(255 * features[i]).astype(np.uint8), "features", f"principal components of {name}"),
            tile(colorize(norms[i], colormap="viridis"), span, f"token norms of {name}"),
        ]
        items.append(f"<figure class='example'><div class='views'>{''.join(views)}</div></figure>")
    about = (
        "Features: the first three principal components of the patch features as red, green and blue, computed over "
        "all images. Norms: the L2 norm of each patch token after the last block. Isolated bright patches are outlier "
        "tokens, which register tokens remove."
    )
    return heading("Patch tokens") + text(about) + f"<div class='examples'>{''.join(items)}</div>\n"


def _layers(model: ViT) -> str:
    lines = [
        [r.path or "(model)", r.kind, " × ".join(map(str, r.shape[1:])), r.parameters, r.macs]
        for r in summarize(model.config, depth=2)
    ]
    return details("Layers", table(["layer", "type", "output", "parameters", "MACs"], lines, "Layers"))

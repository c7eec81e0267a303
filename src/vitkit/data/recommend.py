"""What a data set suggests: a model, a resolution, a way to fit images into it, class weights. Each with its reason."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitkit.model.variants import VARIANTS

PATCH = 16  # of the models for photographs
SMALL_PATCH = 4  # of those for small images

# Up to this many training images → model. A model that is too large for its data learns them by heart.
FOR_PHOTOGRAPHS = [(20_000, "vit_tiny_patch16_224"), (200_000, "vit_small_patch16_224"), (None, "vit_base_patch16_224")]
FOR_SMALL_IMAGES = [(20_000, "vit_pico_stem4_32"), (None, "vit_mini_stem4_32")]
FOR_DIGITS = "vit_digits_patch2_8"

FINE_TUNE_BELOW = 100_000  # images: with fewer, pre-trained weights are worth more than any recipe
SMALL_SIDE = 64  # pixels
LONG = 2.0  # aspect ratio from which a centre crop loses half of the picture
SKEWED = 3.0  # largest class over smallest
PAD = "--set preprocess.fit=pad --set preprocess.crop_fraction=1"


@dataclass(frozen=True)
class Advice:
    model: str
    size: int
    channels: int
    fit: str
    crop_fraction: float
    fine_tune: bool
    class_weights: Sequence[float] | None  # per class, 1 on average over the images; None: the classes are even enough
    reasons: Sequence[str]


def advise(train_counts: np.ndarray, short_side: float, aspect: float, grey: bool) -> Advice:
    """`short_side`: the median; `aspect`: long side over short side, which 95 % of the images stay below."""
    images = int(train_counts.sum())
    small = short_side <= SMALL_SIDE
    model = _model(images, short_side, grey)
    size = _size(model, short_side)
    fine_tune = not small and images < FINE_TUNE_BELOW
    fit = "pad" if aspect > LONG else "crop"
    weights = _weights(train_counts)
    start = (
        ", fine-tuned from pre-trained weights: --init WEIGHTS --recipe finetune" if fine_tune else f": --model {model}"
    )
    resize = f" --set preprocess.size={size}" if size != VARIANTS[model].config.image_size[0] else ""
    reasons = [
        f"{model} at {size} pixels: {images:,} training images of about {short_side:.0f} pixels{start}{resize}",
        f"fit {fit}: 95 % of the images are at most {aspect:.2f} times as long as wide"
        + ("; a crop would lose half of the longest: " + PAD if fit == "pad" else ""),
    ]
    if np.count_nonzero(train_counts) == 1:
        reasons.append("a folder for each class: there is one class only, and nothing to tell it from")
    if weights is not None:
        present = train_counts[train_counts > 0]
        times = f"{present.max() / present.min():.1f} times the images of the smallest"
        reasons.append(f"class weights: the largest class has {times}: --set loss.class_weights=balanced")
    whole = 1.0 if small or fit == "pad" else 0.875
    return Advice(model, size, 1 if grey else 3, fit, whole, fine_tune, weights, reasons)


def _model(images: int, short_side: float, grey: bool) -> str:
    if short_side <= 8 and grey:
        return FOR_DIGITS
    table = FOR_SMALL_IMAGES if short_side <= SMALL_SIDE else FOR_PHOTOGRAPHS
    return next(name for most, name in table if most is None or images <= most)


def _size(model: str, short_side: float) -> int:
    """The model's own, or less where the images have less to show: a multiple of its patch."""
    config = VARIANTS[model].config
    patch, own = config.patch_size[0], config.image_size[0]
    fitting = max(round(short_side / patch), 1) * patch
    return fitting if short_side <= SMALL_SIDE else min(own, max(fitting, 6 * patch))


def _weights(counts: np.ndarray) -> list[float] | None:
    """So that every class weighs the same in the loss, where they are uneven."""
    present = counts[counts > 0]
    if len(present) < 2 or present.max() / present.min() < SKEWED:
        return None
    return [round(float(w), 4) for w in balanced_class_weights(counts)]


def balanced_class_weights(counts: np.ndarray) -> np.ndarray:
    """By the inverse of the count, 1 on average over the images; absent classes weigh nothing."""
    return np.where(counts > 0, counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1)), 0)

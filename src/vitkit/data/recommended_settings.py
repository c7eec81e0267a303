"""Recommend a model, a resolution, how to fit images into it, and class weights for a data set, with reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitkit.model.variants import VARIANTS

# Up to this many training images → model. A model that is too large for its data overfits.
FOR_PHOTOGRAPHS = [(20_000, "vit_tiny_patch16_224"), (200_000, "vit_small_patch16_224"), (None, "vit_base_patch16_224")]
FOR_SMALL_IMAGES = [(20_000, "vit_pico_stem4_32"), (None, "vit_mini_stem4_32")]
FOR_DIGITS = "vit_digits_patch2_8"

FINE_TUNE_BELOW = 100_000  # images: with fewer, pre-trained weights help more than any recipe
SMALL_SIDE = 64  # pixels
MAX_CROP_ASPECT = 2.0  # aspect ratio above which a centre crop loses more than half of the image
IMBALANCED = 3.0  # images of the largest class over those of the smallest
PAD_OPTIONS = "--set preprocess.fit=pad --set preprocess.crop_fraction=1"


@dataclass(frozen=True)
class Recommendation:
    model: str
    size: int
    channels: int
    fit: str
    crop_fraction: float
    fine_tune: bool
    class_weights: Sequence[float] | None  # per class, 1 on average over the images; None if classes are balanced
    reasons: Sequence[str]


def recommend(train_counts: np.ndarray, short_side: float, aspect: float, grey: bool) -> Recommendation:
    """Return settings for a data set.

    `train_counts` are the images per class, `short_side` is the median short side in pixels, and `aspect` the 95th
    percentile of long side / short side.
    """
    images = int(train_counts.sum())
    small = short_side <= SMALL_SIDE
    model = _model(images, short_side, grey)
    size = _size(model, short_side)
    fine_tune = not small and images < FINE_TUNE_BELOW
    fit = "pad" if aspect > MAX_CROP_ASPECT else "crop"
    weights = _class_weights(train_counts)
    start = (
        ", fine-tuned from pre-trained weights: --init WEIGHTS --recipe finetune" if fine_tune else f": --model {model}"
    )
    resize = f" --set preprocess.size={size}" if size != VARIANTS[model].config.image_size[0] else ""
    reasons = [
        f"{model} at {size} pixels: {images:,} training images of about {short_side:.0f} pixels{start}{resize}",
        f"{fit} to a square: 95 % of the images have an aspect ratio (long side / short side) of at most {aspect:.2f}"
        + (f"; a crop would lose half of the longest: {PAD_OPTIONS}" if fit == "pad" else ""),
    ]
    if np.count_nonzero(train_counts) == 1:
        reasons.append("only one class has images: put the images of each class into a folder of its own")
    if weights is not None:
        present = train_counts[train_counts > 0]
        times = f"{present.max() / present.min():.1f} times as many images as the smallest"
        reasons.append(f"class weights: the largest class has {times}: --set loss.class_weights=balanced")
    crop_fraction = 1.0 if small or fit == "pad" else 0.875
    return Recommendation(model, size, 1 if grey else 3, fit, crop_fraction, fine_tune, weights, reasons)


def _model(images: int, short_side: float, grey: bool) -> str:
    if short_side <= 8 and grey:
        return FOR_DIGITS
    table = FOR_SMALL_IMAGES if short_side <= SMALL_SIDE else FOR_PHOTOGRAPHS
    return next(name for most, name in table if most is None or images <= most)


def _size(model: str, short_side: float) -> int:
    """Return the model's image size, or a smaller multiple of its patch size if the images are smaller."""
    config = VARIANTS[model].config
    patch, own = config.patch_size[0], config.image_size[0]
    fitting = max(round(short_side / patch), 1) * patch
    return fitting if short_side <= SMALL_SIDE else min(own, max(fitting, 6 * patch))


def _class_weights(counts: np.ndarray) -> list[float] | None:
    present = counts[counts > 0]
    if len(present) < 2 or present.max() / present.min() < IMBALANCED:
        return None
    return [round(float(w), 4) for w in balanced_class_weights(counts)]


def balanced_class_weights(counts: np.ndarray) -> np.ndarray:
    """Return weights proportional to 1 / count, 1 on average over the images. Absent classes get 0."""
    return np.where(counts > 0, counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1)), 0)

"""Collects the images for an export: some to compare it with the torch model, others to calibrate int8 ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.data.dataset import Dataset, Split
from vitkit.data.decode_pipeline import read_split
from vitkit.data.open import open_data
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError
from vitkit.evaluation.label_map import match_labels
from vitkit.export.sample_photographs import sample_pixels

CALIBRATION_IMAGES = 300
PARITY_IMAGES = 512


@dataclass(frozen=True)
class ParityImages:
    """Images for the comparison of an export with the torch model."""

    name: str
    pixels: np.ndarray  # (N, H, W, C) uint8
    labels: np.ndarray | None = None  # None: the model does not have these classes
    calibration: np.ndarray | None = None  # (M, H, W, C) uint8, disjoint from `pixels`; None: none for int8


def parity_images_from_data(
    data: str | Path,
    preprocess: Preprocess,
    class_names: Sequence[str],
    *,
    images: int = PARITY_IMAGES,
    **open_options: Any,
) -> ParityImages:
    """Return calibration images from the training split, and parity images from the test split, else validation.

    `open_options` are arguments of `open_data`.
    """
    dataset = open_data(data, **open_options)
    name = next(n for n in ("test", "val", "train") if n in dataset.splits)
    parity, has_labels = _match_labels(dataset, dataset.splits[name], class_names)
    training = dataset.splits.get("train")
    if training is None or name == "train":  # a single split: every second image is for calibration
        parity, training = (parity.subset(np.arange(start, len(parity), 2)) for start in (0, 1))
    pixels, labels = _read(parity, preprocess, images)
    calibration, _ = _read(training, preprocess, CALIBRATION_IMAGES)
    return ParityImages(f"{dataset.name}, {name} split", pixels, labels if has_labels else None, calibration)


def parity_images_from_samples(preprocess: Preprocess) -> ParityImages:
    """Return crops of sample photographs. They suffice for a comparison, not for calibration."""
    return ParityImages("sample photographs", sample_pixels(preprocess))


def training_data_options(recipe: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `open_data` for the model's training data, or None if they are not on this machine.

    Nothing is downloaded for a comparison.
    """
    data = recipe.get("data", "")
    if not data or not (data == "digits" or Path(data).exists()):
        return None
    return {key: recipe[key] for key in ("data", "label", "seed", "val_fraction") if key in recipe}


def _match_labels(data: Dataset, split: Split, class_names: Sequence[str]) -> tuple[Split, bool]:
    """Return the split with the model's label indices and True, or unchanged and False if the classes differ."""
    try:
        return match_labels(data, split, class_names), True
    except DataError:
        return split, False


def _read(split: Split, preprocess: Preprocess, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `limit` images and labels, at equal distances in the split, which is sorted by class."""
    indices = np.unique(np.linspace(0, len(split) - 1, min(limit, len(split))).round().astype(np.int64))
    arrays, kept, _ = read_split(split.subset(indices), preprocess.array)
    if not arrays:
        raise DataError("no images to compare the export on: pass a data set with readable images")
    return np.stack(arrays), kept.labels

"""The real images that an export is calibrated on and judged by: of given data, of the model's own, or samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.data.dataset import Dataset, Split
from vitkit.data.open import open_data
from vitkit.data.pipeline import read_split
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError
from vitkit.evaluation.label_map import match_labels
from vitkit.export.samples import sample_images

CALIBRATION_IMAGES = 300
CHECK_IMAGES = 512


@dataclass(frozen=True)
class CheckSet:
    name: str
    pixels: np.ndarray  # (N, H, W, C) uint8: to judge by
    labels: np.ndarray | None = None  # None: the images have no labels that the model knows
    calibration: np.ndarray | None = None  # (M, H, W, C) uint8, none of `pixels`; None: samples do not calibrate


def from_samples(preprocess: Preprocess) -> CheckSet:
    images = sample_images()
    if preprocess.channels not in (1, 3):  # no photograph has such channels: its own, over and over
        images = [np.resize(image.transpose(2, 0, 1), (preprocess.channels, *image.shape[:2])).transpose(1, 2, 0)
                  for image in images]  # fmt: skip
    return CheckSet("sample photographs", np.stack([preprocess.array(image) for image in images]))


def from_data(
    data: str | Path,
    preprocess: Preprocess,
    class_names: Sequence[str],
    *,
    images: int = CHECK_IMAGES,
    **opening: Any,
) -> CheckSet:
    """Calibrated on training images, judged by others: those of the test split if there is one, else validation.

    `opening`: as `open_data` takes it.
    """
    opened = open_data(data, **opening)
    name = next(n for n in ("test", "val", "train") if n in opened.splits)
    judging, labelled = _labelled(opened, opened.splits[name], class_names)
    training = opened.splits.get("train")
    if training is None or name == "train":  # one split only: every second image judges, the others calibrate
        halves = [judging.subset(np.arange(start, len(judging), 2)) for start in (0, 1)]
        judging, training = halves[0], halves[1]
    pixels, labels = _read(judging, preprocess, images)
    calibration, _ = _read(training, preprocess, CALIBRATION_IMAGES)
    return CheckSet(f"{opened.name}, {name} split", pixels, labels if labelled else None, calibration)


def own_data(recipe: Mapping[str, Any]) -> dict[str, Any] | None:
    """How to open the data that the model was trained on, if they are here. Nothing is downloaded for a check."""
    data = recipe.get("data", "")
    if not data or not (data == "digits" or Path(data).exists()):
        return None
    return {key: recipe[key] for key in ("data", "label", "seed", "val_fraction") if key in recipe}


def _labelled(data: Dataset, split: Split, class_names: Sequence[str]) -> tuple[Split, bool]:
    """In the model's numbering; or as it is, and False, where its classes are not the model's."""
    try:
        return match_labels(data, split, class_names), True
    except DataError:
        return split, False


def _read(split: Split, preprocess: Preprocess, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Evenly spread: splits are sorted by class."""
    places = np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).round().astype(np.int64))
    arrays, kept, _ = read_split(split.subset(places), preprocess.array)
    if not arrays:
        raise DataError("no images to check the export by: give a data set that holds some")
    return np.stack(arrays), kept.labels

"""Helpers shared by the tests of exports."""

from pathlib import Path

import numpy as np
import torch

from tests.inference.conftest import NAMES, PREPROCESS, small_model
from vitkit.export.metadata import find_exported
from vitkit.export.runtimes import ExportedModel


def pixels(count: int = 3, height: int = 16, width: int = 16) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def logits(images: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return small_model()(PREPROCESS.normalize(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous())).numpy()


def labelled_by_the_model(path: Path) -> Path:
    """Write a data set whose labels are the model's own predictions, and return its path."""
    images = np.random.default_rng(2).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    labels = logits(np.stack([PREPROCESS.array(image) for image in images])).argmax(axis=1)
    np.savez(path, train_images=images[20:], train_labels=labels[20:], test_images=images[:20],
             test_labels=labels[:20], class_names=np.array(NAMES))  # fmt: skip
    return path


def open_export(folder: Path) -> ExportedModel:
    path = find_exported(folder)
    assert path is not None
    return ExportedModel(path)

"""Read an .npz of pixel arrays."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.data.dataset import SPLITS, Dataset
from vitkit.data.readers.folder import shorten
from vitkit.data.split import from_arrays
from vitkit.errors import DataError


def read_npz(path: Path) -> Dataset:
    """Read `train_images` (N, H, W[, C]) uint8 and `train_labels`, likewise for val and test, and `class_names`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as .npz arrays ({error})") from error
    return read_arrays(arrays, path.stem, str(path))


def read_arrays(arrays: Mapping[str, Any], name: str = "arrays", where: str = "arrays") -> Dataset:
    """Return the data set of arrays or tensors with the names of an .npz: `train_images`, `train_labels` and so on."""
    splits = {}
    for split in SPLITS:
        if f"{split}_images" in arrays:
            if f"{split}_labels" not in arrays:
                raise DataError(f"{where}: {split}_images without {split}_labels")
            images, labels = np.asarray(arrays[f"{split}_images"]), np.asarray(arrays[f"{split}_labels"])
            splits[split] = images, check_arrays(images, labels, f"{where}: {split}")
    if not splits:
        raise DataError(f"{where}: no train_images, val_images or test_images; it has {shorten(arrays, 8)}")
    names = [str(n) for n in arrays["class_names"]] if "class_names" in arrays else None
    return from_arrays(name, splits, names)


def check_arrays(images: np.ndarray, labels: np.ndarray, where: str) -> np.ndarray:
    """Return the labels, one per image; raise if images or labels have another shape or type."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise DataError(f"{where}_images are {images.dtype} {images.shape}; expected uint8 (N, H, W) or (N, H, W, C)")
    if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] > 4:
        raise DataError(f"{where}_images are {images.shape}, channels first; expected (N, H, W, C): transpose them")
    if not len(images):
        raise DataError(f"{where}_images are empty")
    labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iuUS":
        raise DataError(
            f"{where}_labels are {labels.dtype} {labels.shape} for {len(images)} images; "
            "expected one whole number or name each"
        )
    return labels

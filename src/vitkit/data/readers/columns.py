"""Interpret tables, tars and file names: find the image and label columns, the split and the class."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitkit.data.dataset import SPLIT_NAMES, SPLITS, FileImages
from vitkit.errors import DataError, UnknownNameError

IMAGE_COLUMNS = ("image", "img", "path", "file_name", "filename")


def find_column(columns: Sequence[str], wanted: Sequence[str], where: str) -> str:
    """Return the first wanted column that exists; raise if none does."""
    for name in wanted:
        if name in columns:
            return name
    raise UnknownNameError("column", wanted[0], columns, f"{where} has {', '.join(columns) or 'no columns'}")


def parse_split(name: str, where: str) -> str:
    """Return "train", "val" or "test" for a name such as "valid"."""
    if name.strip().lower() not in SPLIT_NAMES:
        raise UnknownNameError("split", name, SPLITS, where)
    return SPLIT_NAMES[name.strip().lower()]


def split_of_file(path: Path) -> str:
    """Return the split of train-00000-of-00005.parquet or train/0.parquet; "train" if neither name is a split."""
    first_word = re.split(r"[^a-z]", path.stem.lower())[0]
    return SPLIT_NAMES.get(first_word) or SPLIT_NAMES.get(path.parent.name.lower()) or "train"


def parse_labels(labels: list[str]) -> list[str] | np.ndarray:
    """Return class indices if all labels are whole numbers, else the names."""
    if labels and all(re.fullmatch(r"\s*\d{1,18}\s*", text) for text in labels):
        return np.array([int(text) for text in labels], dtype=np.int64)
    return labels


def check_paths(images: FileImages, table: Path) -> FileImages:
    """Return `images`. Raise if none of the files exists; a few missing files are allowed, and count as corrupt."""
    if images.paths and not any(map(os.path.exists, images.paths)):
        raise DataError(
            f"{table}: none of its images exists, such as {images.paths[0]}; paths are relative to the file"
        )
    return images

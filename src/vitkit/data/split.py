"""From what a reader found to a `Dataset`: class indices, splits, the order of samples, a validation split."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitkit.data.dataset import (
    CONTENT_LIMIT,
    SPLITS,
    ArrayImages,
    Dataset,
    ImageSource,
    ImageSubset,
    Split,
    class_order,
)
from vitkit.data.fingerprint import content_hashes
from vitkit.errors import DataError

MAX_CLASSES = 100_000  # above it, a column of numbers is not one of classes


@dataclass(frozen=True)
class RawDataset:
    """What a reader returns: one row per image, as it stands in the source."""

    name: str
    images: ImageSource
    labels: Sequence[str] | np.ndarray  # class names, or class indices
    splits: Sequence[str] | None = None  # "train", "val" or "test" of each; None: all are train
    class_names: Sequence[str] | None = None  # what the indices mean, where the source says so
    notes: Sequence[str] = ()
    keep_order: bool = False  # of the source: it can be read from beginning to end, and not well otherwise


def build_dataset(found: RawDataset) -> Dataset:
    if not len(found.images):
        raise DataError(f"{found.name}: no images found; `vitkit inspect --help` shows what a data set looks like")
    indices, class_names, notes = _classes(found)
    order = np.arange(len(indices)) if found.keep_order else np.argsort(indices, kind="stable")
    stamps = None
    if len(found.images) <= CONTENT_LIMIT and not found.keep_order:
        stamps = content_hashes(found.images)
        # lexsort's last key counts most: the class first, then the content
        order = np.lexsort((*stamps.T[::-1], indices))
    where = np.array(found.splits if found.splits is not None else ["train"] * len(indices))
    whole = Split(found.images, indices, stamps)
    splits = {s: whole.subset(rows) for s in SPLITS if len(rows := order[where[order] == s])}
    return Dataset(found.name, class_names, splits, (*found.notes, *notes), named=not _numbered(found))


def _numbered(found: RawDataset) -> bool:
    return isinstance(found.labels, np.ndarray) and found.class_names is None


def _classes(found: RawDataset) -> tuple[np.ndarray, list[str], list[str]]:
    """(class indices, class names, notes)"""
    if not isinstance(found.labels, np.ndarray):
        names = class_order(found.labels)
        place = {name: i for i, name in enumerate(names)}
        return np.array([place[label] for label in found.labels], dtype=np.int64), names, []
    labels = found.labels.astype(np.int64)
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise DataError(f"{found.name}: label {low} is negative; class indices count from 0")
    if found.class_names is not None and high >= len(found.class_names):
        raise DataError(f"{found.name}: label {high}, but there are {len(found.class_names)} class names")
    if high >= MAX_CLASSES:
        raise DataError(f"{found.name}: label {high} is too large for a class index; pick another column with --label")
    names = list(found.class_names) if found.class_names is not None else [str(i) for i in range(high + 1)]
    missing = len(names) - len(np.unique(labels))
    notes = [f"{missing} of the {len(names)} classes have no images"] if missing else []
    return labels, names, notes


def from_arrays(
    name: str,
    arrays: Mapping[str, tuple[np.ndarray, np.ndarray]],
    class_names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Dataset:
    """`arrays`: split → (images, labels). The order of the images is kept."""
    labels = np.concatenate([labels for _, labels in arrays.values()])
    pixels = [images for images, _ in arrays.values()]
    flat = labels.astype(str).tolist() if labels.dtype.kind in "US" else labels
    indices, names, more = _classes(RawDataset(name, ArrayImages(pixels[0], name), flat, class_names=class_names))
    ends = np.cumsum([len(p) for p in pixels])[:-1]
    splits = {
        split: Split(ArrayImages(images, f"{name}:{split}"), part)
        for (split, (images, _)), part in zip(arrays.items(), np.split(indices, ends), strict=True)
    }
    named = class_names is not None or labels.dtype.kind in "US"
    return Dataset(name, names, splits, (*notes, *more), named)


def with_val(dataset: Dataset, fraction: float, seed: int) -> Dataset:
    """The same data set, with a val split taken out of train if it has none."""
    if "val" in dataset.splits or "train" not in dataset.splits or not fraction:
        return dataset
    train = with_hashes(dataset.splits["train"])
    chosen = stratified(train, fraction, seed)
    if not chosen.any():
        return _noted(dataset, f"no val split, and none was made: {len(train)} images in train are too few to share")
    val, rest = train.subset(np.flatnonzero(chosen)), train.subset(np.flatnonzero(~chosen))
    note = (
        f"no val split: {len(val):,} of the {len(train):,} train images were set aside as val "
        f"(stratified, {fraction:.0%}, seed {seed})"
    )
    splits = {"train": flat(rest), "val": flat(val)} | {k: v for k, v in dataset.splits.items() if k != "train"}
    return _noted(dataclasses.replace(dataset, splits=splits, val_was_drawn=True), note)


def stratified(split: Split, fraction: float, seed: int) -> np.ndarray:
    """Which images to set aside: `fraction` of every class, at least one, never all, by seed and content alone.

    Within a class the images are ranked by a hash of seed and stamp, and the first ones taken; exact copies share a
    rank and stay together. Above `CONTENT_LIMIT` image files the name stands for the content.
    """
    digests = [hashlib.sha256(b"%d " % seed + key).digest()[:8] for key in _keys(with_hashes(split))]
    rank = np.frombuffer(b"".join(digests), dtype=">u8")
    chosen = np.zeros(len(split), dtype=bool)
    for k in np.unique(split.labels):
        members = np.flatnonzero(split.labels == k)
        values = np.sort(rank[members])
        share = max(round(fraction * len(members)), 1)
        if values[0] == values[-1]:  # one image, or copies of one: it stays in train
            continue
        last = values[share - 1] if values[share - 1] != values[-1] else values[values < values[-1]][-1]
        chosen[members] = rank[members] <= last
    return chosen


def with_hashes(split: Split) -> Split:
    """With the stamps of its images, unless they are files too many to read."""
    if split.hashes is not None or (len(split) > CONTENT_LIMIT and not isinstance(split.images, ArrayImages)):
        return split
    return dataclasses.replace(split, hashes=content_hashes(split.images))


def _keys(split: Split) -> list[bytes]:
    if split.hashes is None:  # the last two parts of the path, so that the folder can move
        return ["/".join(Path(split.images.name(i)).parts[-2:]).encode() for i in range(len(split))]
    return [s.tobytes() for s in split.hashes]


def flat(split: Split) -> Split:
    """The same split without a subset of a subset; arrays are cut out, so that they lie in memory in order."""
    images = split.images
    if isinstance(images, ImageSubset) and isinstance(images.images, ImageSubset):
        images = ImageSubset(images.images.images, images.images.indices[images.indices])
    if isinstance(images, ImageSubset) and isinstance(images.images, ArrayImages):
        images = images.images.take(images.indices)
    return Split(images, split.labels, split.hashes)


def _noted(dataset: Dataset, note: str) -> Dataset:
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))

"""Build a `Dataset` from the rows that a reader found: class indices, order of samples, splits, a drawn val split."""

import dataclasses
import hashlib
import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitkit.data.dataset import CONTENT_LIMIT, SPLITS, ArrayImages, Dataset, ImageSource, ImageSubset, Split
from vitkit.errors import DataError

MAX_CLASSES = 100_000  # larger numbers are not class indices, and identify images if most of them differ
BY_NAME = f", by file name: exact copies among more than {CONTENT_LIMIT:,} files are not looked for"


@dataclass(frozen=True)
class RawDataset:
    """The result of a reader: one row per image, in the order of the source."""

    name: str
    images: ImageSource
    labels: Sequence[str] | np.ndarray  # class names, or class indices
    splits: Sequence[str] | None = None  # "train", "val" or "test" per image; None: all are train
    class_names: Sequence[str] | None = None  # names of the class indices, if the source has them
    notes: Sequence[str] = ()
    keep_order: bool = False  # the source is slow to read in another order


def build_dataset(raw: RawDataset) -> Dataset:
    if not len(raw.images):
        raise DataError(f"{raw.name}: no images found; `vitkit inspect --help` describes the formats of a data set")
    labels, class_names, notes = _resolve_labels(raw)
    split = Split(raw.images, labels)
    order = np.arange(len(labels)) if raw.keep_order else np.argsort(labels, kind="stable")
    if not raw.keep_order and len(split) <= CONTENT_LIMIT:
        split = dataclasses.replace(split, hashes=split.content_hashes())
        order = np.lexsort((*split.content_hashes().T[::-1], labels))  # the last key is the primary one: the class
    names = np.array(raw.splits if raw.splits is not None else ["train"] * len(labels))
    splits = {name: split.subset(rows) for name in SPLITS if len(rows := order[names[order] == name])}
    numbers = isinstance(raw.labels, np.ndarray)
    named = not numbers or raw.class_names is not None
    return Dataset(
        raw.name, class_names, splits, (*raw.notes, *notes), has_class_names=named, labels_are_indices=numbers
    )


def _resolve_labels(raw: RawDataset) -> tuple[np.ndarray, list[str], list[str]]:
    """Return (class indices, class names, notes)."""
    if not isinstance(raw.labels, np.ndarray):
        # A folder name that is not UTF-8 could be written to few files, and served to no client: its bytes are escaped.
        stripped = [label.encode("utf-8", "backslashreplace").decode().strip() for label in raw.labels]
        names = _class_order(stripped)
        index = {name: i for i, name in enumerate(names)}
        return np.array([index[label] for label in stripped], dtype=np.int64), names, _check_names(raw, stripped)
    labels = raw.labels.astype(np.int64)
    values, positions = np.unique(labels, return_inverse=True)
    low, high = int(values[0]), int(values[-1])
    if low < 0:
        raise DataError(f"{raw.name}: label {low} is negative; class indices count from 0")
    if raw.class_names is not None and high >= len(raw.class_names):
        raise DataError(f"{raw.name}: label {high}, but there are {len(raw.class_names)} class names")
    if high >= MAX_CLASSES and 2 * len(values) > len(labels):
        raise DataError(f"{raw.name}: label {high} is too large for a class index; choose another column with --label")
    if raw.class_names is None and 2 * len(values) <= high:  # codes such as 1990 and 2005: most indices have no image
        note = f"the labels from {low} to {high} have {len(values)} values: each is a class, named by the label"
        return positions.astype(np.int64), [str(value) for value in values], [note]
    names = list(raw.class_names) if raw.class_names is not None else [str(i) for i in range(high + 1)]
    missing = len(names) - len(values)
    return labels, names, [f"{missing} of the {len(names)} classes have no images"] if missing else []


def _check_names(raw: RawDataset, stripped: Sequence[str]) -> list[str]:
    """Return notes about similar class names. Raise if a class has another spelling in another split."""
    if "" in stripped:
        raise DataError(f"{raw.name}: {raw.images.name(stripped.index(''))} has an empty class name: rename the class")
    spaced = sorted({label for label in raw.labels if label != label.strip()})
    notes = [f"spaces around class names were removed, such as those of {spaced[0]!r}"] if spaced else []
    splits_of: dict[str, set[str]] = defaultdict(set)
    for label, split in zip(stripped, raw.splits or ["train"] * len(stripped), strict=True):
        splits_of[label].add(split)
    alike: dict[str, list[str]] = defaultdict(list)
    for name in sorted(splits_of):
        alike[unicodedata.normalize("NFC", name).casefold()].append(name)
    pairs = [(first, second) for first, second, *_ in (names for names in alike.values() if len(names) > 1)]
    for first, second in pairs:
        if not splits_of[first] & splits_of[second]:
            places = (f"{name!r} in {' and '.join(sorted(splits_of[name]))}" for name in (first, second))
            raise DataError(
                f"{raw.name}: class {', '.join(places)} differ only in spelling: use one name in all splits"
            )
    if pairs:
        shown = ", ".join(f"{first!r} and {second!r}" for first, second in pairs[:3])
        notes.append(f"these classes differ only in spelling: {shown}" + (", …" if len(pairs) > 3 else ""))
    return notes


def _class_order(names: Iterable[str]) -> list[str]:
    """Return the names sorted, by number if all names are numbers."""
    distinct = sorted(set(names))
    return sorted(distinct, key=int) if all(n.isdecimal() for n in distinct) else distinct


def from_arrays(
    name: str,
    arrays: Mapping[str, tuple[np.ndarray, np.ndarray]],
    class_names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Dataset:
    """Build a data set from `arrays`: split → (images, labels). The order of the images is kept."""
    joined = np.concatenate([labels for _, labels in arrays.values()])
    is_text = joined.dtype.kind in "US"
    first = next(images for images, _ in arrays.values())
    in_split = [split for split, (images, _) in arrays.items() for _ in range(len(images))]
    raw = RawDataset(
        name, ArrayImages(first, name), joined.astype(str).tolist() if is_text else joined, in_split, class_names
    )
    indices, names, more = _resolve_labels(raw)
    ends = np.cumsum([len(images) for images, _ in arrays.values()])[:-1]
    splits = {
        split: Split(ArrayImages(images, f"{name}:{split}"), labels)
        for (split, (images, _)), labels in zip(arrays.items(), np.split(indices, ends), strict=True)
    }
    named = is_text or class_names is not None
    return Dataset(name, names, splits, (*notes, *more), has_class_names=named, labels_are_indices=not is_text)


def with_val(dataset: Dataset, fraction: float, seed: int) -> Dataset:
    """Return the data set with a val split drawn from train, if it has none."""
    if "val" in dataset.splits or "train" not in dataset.splits or not fraction:
        return dataset
    train = _with_hashes(dataset.splits["train"])
    chosen = stratified(train, fraction, seed)
    if not chosen.any():
        return _with_note(dataset, f"no val split, and none was drawn: train has only {len(train)} images")
    rest, val = (_flatten(train.subset(np.flatnonzero(mask))) for mask in (~chosen, chosen))
    note = (
        f"no val split: {len(val):,} of the {len(train):,} train images were set aside as val "
        f"(stratified, {fraction:.0%}, seed {seed}{'' if train.hashes is not None else BY_NAME})"
    )
    splits = {"train": rest, "val": val} | {name: s for name, s in dataset.splits.items() if name != "train"}
    return _with_note(dataclasses.replace(dataset, splits=splits, val_was_drawn=True), note)


def stratified(split: Split, fraction: float, seed: int) -> np.ndarray:
    """Return a mask of the images to set aside: this fraction of every class, at least one image, never all of them.

    The choice depends on seed and content alone. Within a class the images are ranked by a hash of both, and the first
    ones are set aside. Exact copies share a rank, so they stay together. An image with several labels is set aside only
    if all of its classes would set it aside. Above `CONTENT_LIMIT` image files, names are hashed instead of the
    content.
    """
    digests = [hashlib.sha256(b"%d " % seed + key).digest()[:8] for key in _ranking_keys(_with_hashes(split))]
    rank = np.frombuffer(b"".join(digests), dtype=">u8")
    chosen = np.zeros(len(split), dtype=bool)
    for k in np.unique(split.labels):
        members = np.flatnonzero(split.labels == k)
        values = np.sort(rank[members])
        count = max(round(fraction * len(members)), 1)
        if values[0] == values[-1]:  # one image, or copies of one: it stays in train
            continue
        last = values[count - 1] if values[count - 1] != values[-1] else values[values < values[-1]][-1]
        chosen[members] = rank[members] <= last
    return chosen & ~np.isin(rank, rank[~chosen])


def _with_hashes(split: Split) -> Split:
    """Return the split with content hashes, unless its files are too many to read."""
    if split.hashes is not None or (len(split) > CONTENT_LIMIT and not isinstance(split.images, ArrayImages)):
        return split
    return dataclasses.replace(split, hashes=split.content_hashes())


def _ranking_keys(split: Split) -> list[bytes]:
    if split.hashes is None:  # the last two parts of the path: the data set may be moved
        return [os.fsencode("/".join(Path(split.images.name(i)).parts[-2:])) for i in range(len(split))]
    return [h.tobytes() for h in split.hashes]


def _flatten(split: Split) -> Split:
    """Return the split without a subset of a subset; arrays are copied, so that they are contiguous in memory."""
    images = split.images
    if isinstance(images, ImageSubset) and isinstance(images.images, ImageSubset):
        images = ImageSubset(images.images.images, images.images.indices[images.indices])
    if isinstance(images, ImageSubset) and isinstance(images.images, ArrayImages):
        images = images.images.take(images.indices)
    return Split(images, split.labels, split.hashes)


def _with_note(dataset: Dataset, note: str) -> Dataset:
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))

"""Inspect a data set before training: its content, its faults, and recommended settings."""

import contextlib
import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from vitkit.data.dataset import Dataset, RawImage, ReadFailure, Split
from vitkit.data.decode import PixelRange, decode, oriented_size, pixel_range, read_header
from vitkit.data.decode_pipeline import Progress, read_images
from vitkit.data.near_duplicates import group_duplicates, perceptual_hash, thumbnail
from vitkit.data.recommended_settings import Recommendation, recommend
from vitkit.errors import CorruptImageError, DataError

REDUCED_SIZE = (512, 512)  # a JPEG of more than twice this size is decoded at 1/2, 1/4 or 1/8
MIN_LEVELS = 128  # of 256 grey levels: with fewer, images of more than 8 bits lose detail that they have
MIN_NEAR_SIDE = 32  # pixels: below, different digits are as similar as two versions of a photograph


@dataclass(frozen=True)
class ImageStats:
    """Properties of one image, for counting and for finding duplicates."""

    width: int
    height: int
    mode: str
    format: str
    content: bytes  # digest of the file
    pixels: bytes  # digest of the decoded pixels
    hash: int  # perceptual
    thumb: np.ndarray
    range: PixelRange | None = None  # None: 8 bits


@dataclass(frozen=True)
class Member:
    """One image of a group of duplicates."""

    split: str
    label: str
    name: str


@dataclass(frozen=True)
class Duplicates:
    """A group of duplicate images: `kind` is "bytes" or "pixels" if their bytes or pixels are equal, else "near"."""

    kind: str
    members: Sequence[Member]

    @property
    def leaks(self) -> bool:
        """True if the group spans several splits."""
        return len({m.split for m in self.members}) > 1

    @property
    def conflicts(self) -> bool:
        """True if the group has several labels: at least one is wrong, or the classes overlap."""
        return len({m.label for m in self.members}) > 1


@dataclass(frozen=True)
class Quantiles:
    """The distribution of a number over all images."""

    smallest: float
    p5: float
    median: float
    p95: float
    largest: float


@dataclass(frozen=True)
class ValueRange:
    """The values of all images of more than 8 bits, which preprocessing maps to 0…255."""

    images: int
    used: tuple[float, float]
    nominal: tuple[float, float]  # what becomes 0 and 255; the widest, if it differs between the images
    levels: int  # grey levels that remain of 256
    advice: str  # "" if nothing is lost

    def __str__(self) -> str:
        used, nominal = (f"{low:g} to {high:.10g}" for low, high in (self.used, self.nominal))
        text = f"{self.images:,} images of more than 8 bits use {used} of {nominal}: {self.levels} of 256 grey levels"
        return f"{text}; {self.advice}" if self.advice else text


@dataclass(frozen=True)
class Inspection:
    """The result of `inspect_data`."""

    name: str
    fingerprint: str
    notes: Sequence[str]
    images: int
    splits: Mapping[str, int]
    classes: Mapping[str, Mapping[str, int]]  # class → split → images
    imbalance: float  # images of the largest class over those of the smallest, in train
    width: Quantiles
    height: Quantiles
    aspect: Quantiles  # width / height
    modes: Mapping[str, int]
    formats: Mapping[str, int]
    corrupt: Sequence[tuple[str, ReadFailure]]  # (split, failure)
    copies: Sequence[Duplicates]  # leaks first, then conflicting labels, then the rest
    leaked: Mapping[str, int]  # split → number of its images that have a duplicate in train
    advice: Recommendation
    value_range: ValueRange | None = None  # None: all images have 8 bits

    @property
    def leaks(self) -> list[Duplicates]:
        return [c for c in self.copies if c.leaks]

    @property
    def conflicts(self) -> list[Duplicates]:
        return [c for c in self.copies if c.conflicts]

    def to_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        values["corrupt"] = [{"split": split, **vars(failure)} for split, failure in self.corrupt]
        values["copies"] = [
            {"kind": c.kind, "leaks": c.leaks, "conflicts": c.conflicts, "members": [vars(m) for m in c.members]}
            for c in self.copies
        ]
        return values


def inspect_data(dataset: Dataset, progress: Progress | None = None, threads: int | None = None) -> Inspection:
    """Decode every image once; return statistics, faults, advice. `progress(done, total)` is called for each image."""
    members, stats, corrupt = _scan(dataset, progress, threads or os.cpu_count() or 1)
    if not stats:
        raise DataError(f"{dataset.name}: none of its {len(corrupt):,} images can be decoded, such as {corrupt[0][1]}")
    width, height = _sides(stats)
    copies = _duplicates(members, stats)
    counts = {
        name: np.bincount(split.labels, minlength=len(dataset.class_names)) for name, split in dataset.splits.items()
    }
    train = counts["train" if "train" in counts else next(iter(counts))]
    present = train[train > 0]
    return Inspection(
        name=dataset.name,
        fingerprint=dataset.fingerprint,
        notes=tuple(dataset.notes),
        images=sum(map(len, dataset.splits.values())),
        splits={name: len(split) for name, split in dataset.splits.items()},
        classes={c: {s: int(counts[s][k]) for s in counts} for k, c in enumerate(_unique(dataset.class_names))},
        imbalance=float(present.max() / present.min()),
        width=_quantiles(width),
        height=_quantiles(height),
        aspect=_quantiles(width / height),
        modes=_tally(image.mode for image in stats),
        formats=_tally(image.format for image in stats),
        corrupt=corrupt,
        copies=copies,
        leaked=_leaked(copies, dataset),
        advice=recommend_for(train, stats),
        value_range=summarize_ranges([image.range for image in stats if image.range is not None]),
    )


def sample_ranges(split: Split, most: int = 64) -> list[PixelRange]:
    """Return the ranges of those of about `most` images of a split that have more than 8 bits.

    The images are evenly spaced, or the first ones of a stream, of which each part is slow to read.
    """
    step = max(len(split) // most, 1) if split.has_hashes else 1
    ranges = []
    for index in range(0, min(len(split), step * most), step):
        with contextlib.suppress(CorruptImageError):
            ranges.append(pixel_range(split.images[index], split.images.name(index)))
    return [found for found in ranges if found is not None]


def summarize_ranges(ranges: Sequence[PixelRange], chosen: tuple[float, float] | None = None) -> ValueRange | None:
    """Compare the used values with the nominal range, or with the `chosen` one. Return None for no images."""
    if not ranges:
        return None
    low, high = min(r.used[0] for r in ranges), max(r.used[1] for r in ranges)
    nominal = chosen or (min(r.nominal[0] for r in ranges), max(r.nominal[1] for r in ranges))
    levels = round(255 * min((high - low) / ((nominal[1] - nominal[0]) or 1), 1)) + 1
    whole = low >= 0 and float(high).is_integer() and high > 1
    fitting = (0, 2 ** int(high).bit_length() - 1) if whole else (low, high)
    setting = f"--set 'preprocess.range=({fitting[0]:g}, {fitting[1]:.10g})'"
    advice = ""
    if chosen and (low < chosen[0] or high > chosen[1]):
        advice = f"values outside of the range are clipped: {setting}"
    elif not chosen and len({r.nominal for r in ranges}) > 1:
        advice = f"the images are scaled by different ranges: use one, {setting}"
    elif levels <= MIN_LEVELS and any(r.colour for r in ranges):
        advice = "only the upper 8 bits of 16-bit colour can be read: scale the images, and save them with 8 bits"
    elif levels <= MIN_LEVELS:
        advice = f"the images become dark and lose detail: {setting}"
    return ValueRange(len(ranges), (low, high), nominal, levels, advice)


def recommend_for(train_counts: np.ndarray, stats: Sequence[ImageStats]) -> Recommendation:
    """Return recommended settings from the images per class and the properties of some images."""
    width, height = _sides(stats)
    aspect = float(np.percentile(np.maximum(width / height, height / width), 95))
    grey = all(image.mode in ("1", "L", "LA", "I;16", "I", "F") for image in stats)
    return recommend(train_counts, float(np.median(np.minimum(width, height))), aspect, grey)


def probe_sample(split: Split, most: int = 64) -> list[ImageStats]:
    """Return the properties of about `most` evenly spaced images of a split. Undecodable images are left out."""
    stats = []
    for index in range(0, len(split), max(len(split) // most, 1)):
        with contextlib.suppress(CorruptImageError):
            stats.append(probe_image(split.images[index], split.images.name(index)))
    if not stats:
        raise DataError(f"none of the sampled images can be decoded, such as {split.images.name(0)}")
    return stats


def _sides(stats: Sequence[ImageStats]) -> tuple[np.ndarray, np.ndarray]:
    width, height = (np.array([getattr(image, side) for image in stats], dtype=float) for side in ("width", "height"))
    return width, height


def probe_image(encoded: RawImage, name: str) -> ImageStats:
    """Decode an image and return its properties."""
    if isinstance(encoded, np.ndarray):
        height, width = encoded.shape[:2]
        channels = encoded.shape[2] if encoded.ndim == 3 else 1
        mode, format = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels} channels"), "array"
        content = hashlib.sha256(f"{encoded.shape} ".encode() + encoded.tobytes()).digest()
        if channels in (1, 3, 4):
            image = decode(encoded, name=name)
        else:
            image = Image.fromarray(encoded.mean(axis=2).astype(np.uint8))
        pixels = content
    else:
        header = read_header(encoded, name)
        mode, format = header.mode, header.format or "unknown"
        content = hashlib.sha256(encoded).digest()
        image = decode(encoded, name=name, min_size=REDUCED_SIZE)
        width, height = oriented_size(header)  # not the size of `image`, which may be reduced
        pixels = hashlib.sha256(f"{width}×{height} ".encode() + image.tobytes()).digest()
    thumb = thumbnail(image)
    values = pixel_range(encoded, name)
    return ImageStats(width, height, mode, format, content, pixels, perceptual_hash(thumb), thumb, values)


def _scan(
    dataset: Dataset, progress: Progress | None, threads: int
) -> tuple[list[Member], list[ImageStats], list[tuple[str, ReadFailure]]]:
    members: list[Member] = []
    stats: list[ImageStats] = []
    corrupt: list[tuple[str, ReadFailure]] = []
    total = sum(map(len, dataset.splits.values()))
    for name, split in dataset.splits.items():
        results = read_images(split.images, np.arange(len(split)), probe_image, threads)
        for index, result in enumerate(results):
            if isinstance(result, ReadFailure):
                corrupt.append((name, result))
            else:
                stats.append(result)
                label = dataset.class_names[int(split.labels[index])]
                members.append(Member(name, label, split.images.name(index)))
            if progress:
                progress(len(stats) + len(corrupt), total)
    return members, stats, corrupt


def _duplicates(members: Sequence[Member], stats: Sequence[ImageStats]) -> list[Duplicates]:
    """Return groups of duplicates: leaks first, then conflicting labels, then the rest; larger groups first."""
    hashes = np.array([image.hash for image in stats], dtype=np.uint64)
    thumbs = np.stack([image.thumb for image in stats])
    comparable = np.array([min(image.width, image.height) >= MIN_NEAR_SIDE for image in stats])
    content, pixels = [image.content for image in stats], [image.pixels for image in stats]
    groups = group_duplicates(content, pixels, hashes, thumbs, comparable)
    duplicates = [Duplicates(g.kind, tuple(members[i] for i in g.members)) for g in groups]
    return sorted(duplicates, key=lambda d: (not d.leaks, not d.conflicts))


def _leaked(copies: Sequence[Duplicates], dataset: Dataset) -> dict[str, int]:
    tally = Counter(m.split for c in copies if any(m.split == "train" for m in c.members) for m in c.members)
    return {split: tally[split] for split in dataset.splits if split != "train"}


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names; those of several classes are followed by the class index."""
    times = Counter(names)
    return [name if times[name] == 1 else f"{name} ({k})" for k, name in enumerate(names)]


def _quantiles(values: np.ndarray) -> Quantiles:
    return Quantiles(*(round(float(v), 3) for v in np.percentile(values, [0, 5, 50, 95, 100])))


def _tally(values: Any) -> dict[str, int]:
    return dict(Counter(values).most_common())

"""A data set, looked at before it is trained on: what it holds, what is wrong with it, what that suggests."""

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

from vitkit.data.dataset import Dataset, RawImage, Split
from vitkit.data.decode import decode, oriented_size, read_header
from vitkit.data.near_duplicates import Group, group, perceptual_hash, thumbnail
from vitkit.data.pipeline import Progress, threaded_map
from vitkit.data.recommend import Advice, advise
from vitkit.errors import CorruptImageError, DataError

LARGE = (512, 512)  # a JPEG of four times this and more is looked at in half its size or less
NEAR_SIDE = 32  # pixels: below, different digits are as alike as two copies of a photograph


@dataclass(frozen=True)
class ImageStats:
    """What one look at an image tells."""

    width: int
    height: int
    mode: str
    format: str
    content: bytes  # digests of the file, and of the decoded pixels
    pixels: bytes
    hash: int
    thumb: np.ndarray


@dataclass(frozen=True)
class Member:
    split: str
    label: str
    name: str


@dataclass(frozen=True)
class Copies:
    """Images that show the same: "bytes" are equal, "pixels" are equal, or they are "near" copies."""

    kind: str
    members: Sequence[Member]

    @property
    def leaks(self) -> bool:
        return len({m.split for m in self.members}) > 1

    @property
    def conflicts(self) -> bool:
        """The same picture under two classes: at least one label is wrong, or the classes overlap."""
        return len({m.label for m in self.members}) > 1


@dataclass(frozen=True)
class Spread:
    """Of a number, over all images."""

    smallest: float
    p5: float
    median: float
    p95: float
    largest: float


@dataclass(frozen=True)
class Inspection:
    name: str
    fingerprint: str
    notes: Sequence[str]
    images: int
    splits: Mapping[str, int]
    classes: Mapping[str, Mapping[str, int]]  # class → split → images
    imbalance: float  # images of the largest class over those of the smallest, in train
    width: Spread
    height: Spread
    aspect: Spread  # width over height
    modes: Mapping[str, int]
    formats: Mapping[str, int]
    corrupt: Sequence[tuple[str, str, str]]  # (split, name, reason)
    copies: Sequence[Copies]  # leaks first, then conflicting labels, then the rest
    leaked: Mapping[str, int]  # split → how many of its images have a copy in train
    advice: Advice

    @property
    def leaks(self) -> list[Copies]:
        return [c for c in self.copies if c.leaks]

    @property
    def conflicts(self) -> list[Copies]:
        return [c for c in self.copies if c.conflicts]

    def to_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        values["corrupt"] = [{"split": s, "name": n, "reason": r} for s, n, r in self.corrupt]
        values["copies"] = [
            {"kind": c.kind, "leaks": c.leaks, "conflicts": c.conflicts, "members": [vars(m) for m in c.members]}
            for c in self.copies
        ]
        return values


def inspect_data(dataset: Dataset, progress: Progress | None = None, threads: int | None = None) -> Inspection:
    """Every image is decoded once. `progress(done, of all)` is called as it goes."""
    members, looks, corrupt = _scan(dataset, progress, threads or os.cpu_count() or 1)
    if not looks:
        _, name, reason = corrupt[0]
        raise DataError(f"{dataset.name}: none of its {len(corrupt):,} images can be decoded; {name}: {reason}")
    width, height = _sides(looks)
    copies = _copies(members, looks)
    counts = _counts(dataset)
    train = counts["train" if "train" in counts else next(iter(counts))]
    present = train[train > 0]
    return Inspection(
        name=dataset.name,
        fingerprint=dataset.fingerprint,
        notes=tuple(dataset.notes),
        images=sum(map(len, dataset.splits.values())),
        splits={name: len(split) for name, split in dataset.splits.items()},
        classes={c: {s: int(counts[s][k]) for s in counts} for k, c in enumerate(dataset.class_names)},
        imbalance=float(present.max() / present.min()),
        width=_spread(width),
        height=_spread(height),
        aspect=_spread(width / height),
        modes=_tally(look.mode for look in looks),
        formats=_tally(look.format for look in looks),
        corrupt=corrupt,
        copies=copies,
        leaked=_leaked(copies, dataset),
        advice=recommend_for(train, looks),
    )


def recommend_for(train_counts: np.ndarray, looks: Sequence[ImageStats]) -> Advice:
    """Advice from the number of training images per class and a look at them, or at some of them."""
    width, height = _sides(looks)
    long = float(np.percentile(np.maximum(width / height, height / width), 95))
    grey = all(look.mode in ("1", "L", "LA", "I;16", "I", "F") for look in looks)
    return advise(train_counts, float(np.median(np.minimum(width, height))), long, grey)


def probe_sample(split: Split, most: int = 64) -> list[ImageStats]:
    """A look at some images, evenly spread; those that cannot be read are passed over."""
    looks = []
    for index in range(0, len(split), max(len(split) // most, 1)):
        with contextlib.suppress(CorruptImageError):
            looks.append(probe_image(split.images[index], split.images.name(index)))
    if not looks:
        raise DataError(f"none of the images that were looked at can be decoded, such as {split.images.name(0)}")
    return looks


def _sides(looks: Sequence[ImageStats]) -> tuple[np.ndarray, np.ndarray]:
    width, height = (np.array([getattr(look, side) for look in looks], dtype=float) for side in ("width", "height"))
    return width, height


def probe_image(encoded: RawImage, name: str) -> ImageStats:
    if isinstance(encoded, np.ndarray):
        height, width = encoded.shape[:2]
        channels = encoded.shape[2] if encoded.ndim == 3 else 1
        mode, format = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels} channels"), "array"
        content = hashlib.sha256(f"{encoded.shape} ".encode() + encoded.tobytes()).digest()
        image = _grey(encoded) if channels not in (1, 3, 4) else decode(encoded, name=name)
        pixels = content
    else:
        header = read_header(encoded, name)
        mode, format = header.mode, header.format or "unknown"
        content = hashlib.sha256(encoded).digest()
        image = decode(encoded, name=name, min_size=LARGE)
        width, height = oriented_size(header)  # a large one was decoded in reduced size
        pixels = hashlib.sha256(f"{width}×{height} ".encode() + image.tobytes()).digest()
    thumb = thumbnail(image)
    return ImageStats(width, height, mode, format, content, pixels, perceptual_hash(thumb), thumb)


def _grey(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels.mean(axis=2).astype(np.uint8))


def _scan(
    dataset: Dataset, progress: Progress | None, threads: int
) -> tuple[list[Member], list[ImageStats], list[tuple[str, str, str]]]:
    members: list[Member] = []
    looks: list[ImageStats] = []
    corrupt: list[tuple[str, str, str]] = []
    total, done = sum(map(len, dataset.splits.values())), 0
    for name, split in dataset.splits.items():

        def one(index: int, images: Any = split.images) -> ImageStats | CorruptImageError:
            try:
                return probe_image(images[index], images.name(index))
            except CorruptImageError as error:
                return error

        for index, result in enumerate(threaded_map(one, len(split), threads)):
            if isinstance(result, CorruptImageError):
                corrupt.append((name, result.name, result.reason))
            else:
                looks.append(result)
                label = dataset.class_names[int(split.labels[index])]
                members.append(Member(name, label, split.images.name(index)))
            done += 1
            if progress:
                progress(done, total)
    return members, looks, corrupt


def _copies(members: Sequence[Member], looks: Sequence[ImageStats]) -> list[Copies]:
    """Leaks first, then conflicting labels, then the rest; larger groups before smaller ones."""
    hashes = np.array([look.hash for look in looks], dtype=np.uint64)
    thumbs = np.stack([look.thumb for look in looks])
    comparable = np.array([min(look.width, look.height) >= NEAR_SIDE for look in looks])
    groups: list[Group] = group([k.content for k in looks], [k.pixels for k in looks], hashes, thumbs, comparable)
    copies = [Copies(g.kind, tuple(members[i] for i in g.members)) for g in groups]
    return sorted(copies, key=lambda c: (not c.leaks, not c.conflicts))


def _leaked(copies: Sequence[Copies], dataset: Dataset) -> dict[str, int]:
    with_train = [m.split for c in copies if any(m.split == "train" for m in c.members) for m in c.members]
    tally = Counter(with_train)
    return {split: tally[split] for split in dataset.splits if split != "train"}


def _counts(dataset: Dataset) -> dict[str, np.ndarray]:
    return {s: np.bincount(split.labels, minlength=len(dataset.class_names)) for s, split in dataset.splits.items()}


def _spread(values: np.ndarray) -> Spread:
    return Spread(*(round(float(v), 3) for v in np.percentile(values, [0, 5, 50, 95, 100])))


def _tally(values: Any) -> dict[str, int]:
    return dict(Counter(values).most_common())

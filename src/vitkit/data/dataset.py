"""A data set: index → (encoded image, label), in named splits.

Nothing is decoded here. An image is either the bytes of an image file or a uint8 array (H, W) or (H, W, C);
`preprocess.py` makes both into what the model sees.

Image files are put in the order of their class and their content, not of their names, and a validation split is drawn
by content too: the same photographs give the same run whether they come as a folder, a CSV or a parquet file, and exact
copies of one image stay on one side of the split. Above `CONTENT_LIMIT` images, where reading them all first would cost
too much, the order is that of the source, by class. ArrayImages keep their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from vitkit.errors import CorruptImageError

RawImage = bytes | np.ndarray

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip

CONTENT_LIMIT = 50_000


class ImageSource(Protocol):
    """A sequence of encoded images that need not be in memory."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> RawImage: ...
    def name(self, index: int, /) -> str:
        """What to call the image in a message: its path, or its place in the file."""
        ...


@dataclass(frozen=True)
class Split:
    images: ImageSource
    labels: np.ndarray  # int64, one class index per image
    hashes: np.ndarray | None = field(default=None, repr=False, compare=False)  # (N, 16) bytes, see fingerprint.py

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: np.ndarray) -> "Split":
        stamps = None if self.hashes is None else self.hashes[indices]
        return Split(ImageSubset(self.images, indices), self.labels[indices], stamps)


@dataclass(frozen=True)
class ImageSubset:
    images: ImageSource
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> RawImage:
        return self.images[int(self.indices[index])]

    def name(self, index: int, /) -> str:
        return self.images.name(int(self.indices[index]))


@dataclass(frozen=True)
class ArrayImages:
    """ImageSource of one shape, in memory: (N, H, W) or (N, H, W, C), uint8."""

    pixels: np.ndarray
    origin: str
    numbers: np.ndarray | None = None  # of the images in their origin, where only some are left

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int, /) -> np.ndarray:
        return self.pixels[index]

    def name(self, index: int, /) -> str:
        return f"{self.origin}[{index if self.numbers is None else self.numbers[index]}]"

    def take(self, rows: np.ndarray) -> "ArrayImages":
        return ArrayImages(self.pixels[rows], self.origin, rows if self.numbers is None else self.numbers[rows])


@dataclass(frozen=True)
class FileImages:
    """Image files, read when asked for."""

    paths: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> bytes:
        try:
            return Path(self.paths[index]).read_bytes()
        except OSError as error:
            raise CorruptImageError(self.name(index), unreadable(error)) from error

    def name(self, index: int, /) -> str:
        return self.paths[index]


@dataclass(frozen=True)
class Dataset:
    name: str
    class_names: Sequence[str]
    splits: Mapping[str, Split]  # "train", "val", "test": at least one of them
    notes: Sequence[str] = field(default_factory=tuple)  # what was decided on the way, such as a split that was made
    named: bool = True  # False: the labels were numbers, and the class names are these numbers
    val_was_drawn: bool = False  # True: the source had no val split, and one was drawn

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what is in which split under which class, whatever it is packed in: see fingerprint.py."""
        from vitkit.data.fingerprint import fingerprint

        return fingerprint(self)


def class_order(names: Iterable[str]) -> list[str]:
    """By name; by number where all names are numbers."""
    distinct = sorted(set(names))
    return sorted(distinct, key=int) if all(n.isdecimal() for n in distinct) else distinct


def unreadable(error: OSError) -> str:
    return "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"

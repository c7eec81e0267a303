"""Types of a data set: images and labels in named splits. Nothing is decoded here; `preprocess.py` does that.

Image files are sorted by class and content, not by name, and a validation split is drawn by content too. So the same
photographs give the same run whether they come as a folder, a CSV or a parquet file, and exact copies of an image stay
in one split. Above `CONTENT_LIMIT` images, which would take too long to read first, they are sorted by class and keep
the order of the source, and the split is drawn by name. Arrays keep their order.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from vitkit.data.fingerprint import HASH_BYTES, fingerprint_split, hash_content, hash_file, hash_name
from vitkit.errors import CorruptImageError
from vitkit.runtime.threads import threaded_map

RawImage = bytes | np.ndarray  # the content of an image file, or uint8 pixels (H, W) or (H, W, C)

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip

CONTENT_LIMIT = 50_000


@dataclass(frozen=True)
class ReadFailure:
    """An image, or a file that holds images, that cannot be read."""

    name: str
    reason: str

    @classmethod
    def of(cls, error: CorruptImageError) -> Self:
        return cls(error.name, error.reason)

    def error(self) -> CorruptImageError:
        return CorruptImageError(self.name, self.reason)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class ImageSource(ABC):
    """A sequence of undecoded images that need not be in memory. Subclasses define `__len__`, `__getitem__`, `name`."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int, /) -> RawImage:
        """Return an image; raise `CorruptImageError` if it cannot be read."""

    @abstractmethod
    def name(self, index: int, /) -> str:
        """Return the name of the image for messages: its path, or its position in a file."""

    def read_many(self, indices: np.ndarray, /) -> list[RawImage | ReadFailure]:
        """Return the images at `indices`; a `ReadFailure` takes the place of an unreadable one."""
        return [self._read(int(index)) for index in indices]

    def storage_order(self, indices: np.ndarray, /) -> np.ndarray:
        """Return positions in `indices` in the order in which the images are fastest to read."""
        return np.arange(len(indices))

    def content_hash(self, index: int, /) -> bytes:
        """Return 16 bytes that are equal for equal content. For unreadable content they depend on the name."""
        try:
            return hash_content(self[index])
        except CorruptImageError:
            return hash_name(self.name(index))

    @property
    def has_cheap_hashes(self) -> bool:
        """True if content hashes need no files to be read."""
        return False

    def _read(self, index: int) -> RawImage | ReadFailure:
        try:
            return self[index]
        except CorruptImageError as error:
            return ReadFailure.of(error)


@dataclass(frozen=True)
class ImageSubset(ImageSource):
    images: ImageSource
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> RawImage:
        return self.images[int(self.indices[index])]

    def name(self, index: int, /) -> str:
        return self.images.name(int(self.indices[index]))

    def read_many(self, indices: np.ndarray, /) -> list[RawImage | ReadFailure]:
        return self.images.read_many(self.indices[indices])

    def storage_order(self, indices: np.ndarray, /) -> np.ndarray:
        return self.images.storage_order(self.indices[indices])

    def content_hash(self, index: int, /) -> bytes:
        return self.images.content_hash(int(self.indices[index]))

    @property
    def has_cheap_hashes(self) -> bool:
        return self.images.has_cheap_hashes


@dataclass(frozen=True)
class ArrayImages(ImageSource):
    """Images of one shape in memory: (N, H, W) or (N, H, W, C), uint8."""

    pixels: np.ndarray
    origin: str
    numbers: np.ndarray | None = None  # positions in the origin, if only some images are kept

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int, /) -> np.ndarray:
        return self.pixels[index]

    def name(self, index: int, /) -> str:
        return f"{self.origin}[{index if self.numbers is None else self.numbers[index]}]"

    @property
    def has_cheap_hashes(self) -> bool:
        return True

    def take(self, rows: np.ndarray) -> "ArrayImages":
        return ArrayImages(self.pixels[rows], self.origin, rows if self.numbers is None else self.numbers[rows])


@dataclass(frozen=True)
class FileImages(ImageSource):
    """Image files, read on access."""

    paths: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> bytes:
        try:
            return Path(self.paths[index]).read_bytes()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            reason = "there is no such file" if missing else f"cannot be read ({error.strerror})"
            raise CorruptImageError(self.name(index), reason) from error

    def name(self, index: int, /) -> str:
        return self.paths[index]

    def content_hash(self, index: int, /) -> bytes:
        try:
            return hash_file(Path(self.paths[index]))
        except OSError:
            return hash_name(self.name(index))


def unwrap_subsets(images: ImageSource) -> tuple[ImageSource, np.ndarray | None]:
    """Return the images below all subsets, and the indices of the selected ones (None: all)."""
    rows = None
    while isinstance(images, ImageSubset):
        rows = images.indices if rows is None else images.indices[rows]
        images = images.images
    return images, rows


def hash_images(images: ImageSource) -> np.ndarray:
    """Return the content hashes of all images, (N, 16) uint8."""
    in_memory = isinstance(unwrap_subsets(images)[0], ArrayImages)  # where a thread costs more than a hash
    each = (map if in_memory else threaded_map)(images.content_hash, range(len(images)))
    return np.frombuffer(b"".join(each), dtype=np.uint8).reshape(-1, HASH_BYTES)


@dataclass(frozen=True)
class Split:
    """Images and their class indices, in a fixed order."""

    images: ImageSource
    labels: np.ndarray  # int64, one class index per image
    hashes: np.ndarray | None = field(default=None, repr=False, compare=False)  # (N, 16) uint8, if computed already

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: np.ndarray) -> "Split":
        hashes = None if self.hashes is None else self.hashes[indices]
        return Split(ImageSubset(self.images, indices), self.labels[indices], hashes)

    def content_hashes(self) -> np.ndarray:
        return self.hashes if self.hashes is not None else hash_images(self.images)

    def known_hashes(self) -> np.ndarray | None:
        """Return the content hashes, or None if files would have to be read: above `CONTENT_LIMIT`, and of streams."""
        return self.content_hashes() if self.has_hashes else None

    @property
    def has_hashes(self) -> bool:
        return self.hashes is not None or self.images.has_cheap_hashes

    def fingerprint(self, class_names: Sequence[str]) -> str:
        """Return the SHA-256 of labels and content. Above `CONTENT_LIMIT` images, only that many are hashed."""
        rows = np.arange(len(self))
        if len(self) > CONTENT_LIMIT and self.hashes is None:
            rows = np.linspace(0, len(self) - 1, CONTENT_LIMIT).astype(np.int64)
        return fingerprint_split(self.labels, class_names, rows, self.subset(rows).content_hashes())

    def order_digest(self) -> str:
        """Return the SHA-256 of images and labels in their order. Images are identified by content if it is known.

        Otherwise they are identified by their names, without the folder that all of them share.
        """
        total = hashlib.sha256(self.labels.astype("<i8").tobytes())
        if self.hashes is not None:
            total.update(self.hashes.tobytes())
        else:
            names = [self.images.name(i) for i in range(len(self))]
            shared = len(os.path.commonprefix(names))  # noqa: RUF071  # rows of a file have names too
            total.update("\0".join(name[shared:] for name in names).encode(errors="surrogateescape"))
        return total.hexdigest()


@dataclass(frozen=True)
class Dataset:
    """Labelled images in up to three splits, as `open_data` returns them."""

    name: str
    class_names: Sequence[str]
    splits: Mapping[str, Split]  # "train", "val", "test": at least one of them
    notes: Sequence[str] = field(default_factory=tuple)  # what a user should know, such as files that were left out
    has_class_names: bool = True  # False: the labels were numbers, and `class_names` are these numbers
    val_was_drawn: bool = False  # True: the source had no val split, and one was drawn from train
    labels_are_indices: bool = False  # True: the labels of the source were numbers, with class names or without

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the content, split and class name of the images (see fingerprint.py)."""
        total = hashlib.sha256()
        for name in sorted(self.splits):
            total.update(f"{name} {self.splits[name].fingerprint(self.class_names)}\n".encode())
        return total.hexdigest()

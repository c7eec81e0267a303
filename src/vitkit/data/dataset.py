"""A data set: index → (encoded image, label), in named splits.

Nothing is decoded here. An image is either the bytes of an image file or a uint8 array (H, W) or (H, W, C);
`preprocess.py` makes both into what the model sees.

Image files are put in the order of their class and their content, not of their names, and a validation split is drawn
by content too: the same photographs give the same run whether they come as a folder, a CSV or a parquet file, and exact
copies of one image stay on one side of the split. Above `CONTENT_LIMIT` images, where reading them all first would cost
too much, the order is that of the source, by class. Arrays keep their order.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vitkit.errors import ConfigError, CorruptImageError, DataError, UnknownNameError, UsageError

Encoded = bytes | np.ndarray

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip

CONTENT_LIMIT = 50_000
CORRUPT_LIMIT = 0.01
MORE_ALLOWED = "--set corrupt_limit=SHARE when training, --corrupt-limit SHARE elsewhere"
READ_TOGETHER = 32  # images that one thread asks a store for at once
THREADS = 8  # they wait for the disk, or decode with Python's lock released

Progress = Callable[[int, int], None]  # (done, of all)


class Images(Protocol):
    """A sequence of encoded images that need not be in memory."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Encoded: ...
    def name(self, index: int, /) -> str:
        """What to call the image in a message: its path, or its place in the file."""
        ...


@dataclass(frozen=True)
class Split:
    images: Images
    labels: np.ndarray  # int64, one class index per image
    stamps: np.ndarray | None = field(default=None, repr=False, compare=False)  # (N, 16) bytes, see fingerprint.py

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: np.ndarray) -> "Split":
        stamps = None if self.stamps is None else self.stamps[indices]
        return Split(Subset(self.images, indices), self.labels[indices], stamps)


@dataclass(frozen=True)
class Subset:
    images: Images
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Encoded:
        return self.images[int(self.indices[index])]

    def name(self, index: int, /) -> str:
        return self.images.name(int(self.indices[index]))


@dataclass(frozen=True)
class Arrays:
    """Images of one shape, in memory: (N, H, W) or (N, H, W, C), uint8."""

    pixels: np.ndarray
    origin: str
    numbers: np.ndarray | None = None  # of the images in their origin, where only some are left

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int, /) -> np.ndarray:
        return self.pixels[index]

    def name(self, index: int, /) -> str:
        return f"{self.origin}[{index if self.numbers is None else self.numbers[index]}]"

    def take(self, rows: np.ndarray) -> "Arrays":
        return Arrays(self.pixels[rows], self.origin, rows if self.numbers is None else self.numbers[rows])


@dataclass(frozen=True)
class Files:
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
    made_val: bool = False  # True: the source had no val split, and one was drawn

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what is in which split under which class, whatever it is packed in: see fingerprint.py."""
        from vitkit.data.fingerprint import fingerprint

        return fingerprint(self)


def open_data(
    spec: str | Path,
    *,
    label: str = "label",
    data_dir: str | Path | None = None,
    seed: int = 0,
    val_fraction: float = 0.1,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Dataset:
    """A folder of class folders, a CSV, parquet files (one, a folder or a pattern), an .npz of arrays, or a name; or
    shards, here or in an object store: the folder of `vitkit pack`, WebDataset tars (`stream.py`).

    `label` is the column of the class in CSV and parquet. Where there is a train but no val split, `val_fraction` of
    train is set aside, drawn by `seed`, and noted; 0 leaves train whole. A test split is never made. `corrupt_limit`:
    the share of images that may lie in shards that are missing or broken.
    """
    # They build on the types above.
    from vitkit.data.readers.builtin import NAMED, open_named
    from vitkit.data.readers.tables import READERS
    from vitkit.data.shards.stream import is_shards, open_shards
    from vitkit.data.split import with_val

    if not 0 <= val_fraction < 1:
        raise UsageError(f"val_fraction={val_fraction}: expected at least 0 and below 1")
    if isinstance(spec, str) and spec in NAMED:
        return with_val(open_named(spec, data_dir), val_fraction, seed)
    if is_shards(str(spec)):
        return with_val(open_shards(str(spec), label, corrupt_limit), val_fraction, seed)
    path = Path(spec).expanduser()
    for fits, read in READERS:
        if fits(path):
            return with_val(read(path, label), val_fraction, seed)
    if path.exists():
        raise DataError(f"{path}: not a data set; expected a folder, .csv, .parquet, .tar or .npz")
    raise UnknownNameError("data set", str(spec), NAMED, "nor is there such a file or folder")


class Corrupt:
    """Names and counts the images that cannot be used, and stops above `limit` (a share of `total`).

    A set that is read lazily meets its corrupt files while it trains: whoever reads it catches `CorruptImageError`,
    hands it to `add` and leaves that image out. The same files fail every time, so the run stays reproducible.
    """

    def __init__(self, total: int, limit: float = CORRUPT_LIMIT) -> None:
        if not 0 <= limit <= 1:
            raise ConfigError(f"corrupt_limit={limit:g}: a share lies between 0 and 1")
        self.total, self.limit = total, limit
        self.found: dict[str, str] = {}

    def add(self, *errors: CorruptImageError) -> None:
        """Each image counts once, however often it is met."""
        self.found |= {error.name: error.reason for error in errors}
        if len(self.found) > self.limit * self.total:
            name, reason = next(iter(self.found.items()))
            raise DataError(
                f"{len(self.found):,} of {self.total:,} images cannot be used, more than the limit of "
                f"{self.limit:.2%}; the first: {name}: {reason} (`vitkit inspect` lists them; to leave them out: "
                f"{MORE_ALLOWED})"
            )


def read_all(
    split: Split,
    convert: Callable[[Encoded, str], Any],
    limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    threads: int = THREADS,
) -> tuple[list[Any], Split, list[tuple[str, str]]]:
    """Every image once through `convert(encoded, name)`: the results, the split of the good ones, what is bad and why.

    Above `limit` it is an error; nothing is put in the place of what is left out.
    """
    results, good, bad = read_some(split, np.arange(len(split)), convert, limit, progress, threads)
    return results, split.subset(good) if bad else split, bad


def read_some(
    split: Split,
    rows: np.ndarray,
    convert: Callable[[Encoded, str], Any],
    limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    threads: int = THREADS,
) -> tuple[list[Any], np.ndarray, list[tuple[str, str]]]:
    """The same for these rows of it: the results, the rows of the good ones, what is bad. `limit` is of the split.

    Read in the order in which they lie on the disk; returned in the order of `rows`.
    """
    from vitkit.data.shards.reader import read_many, reading_order  # they build on the types above

    order = reading_order(split.images, rows)
    together = READ_TOGETHER if len(rows) > READ_TOGETHER * threads else 1

    def some(block: int) -> list[Any]:
        indices = rows[order[block * together : (block + 1) * together]]
        return [one(int(i), encoded) for i, encoded in zip(indices, read_many(split.images, indices), strict=True)]

    def one(index: int, encoded: Encoded | CorruptImageError) -> Any:
        if isinstance(encoded, CorruptImageError):
            return encoded
        try:
            return convert(encoded, split.images.name(index))
        except CorruptImageError as error:
            return error

    corrupt, results = Corrupt(len(split), limit), dict[int, Any]()
    blocks = parallel(some, -(-len(rows) // together), threads, ahead=max(256 // together, threads))
    for done, (place, result) in enumerate(zip(order.tolist(), chain.from_iterable(blocks), strict=True), 1):
        if isinstance(result, CorruptImageError):
            corrupt.add(result)
        else:
            results[place] = result
        if progress:
            progress(done, len(rows))
    good = sorted(results)
    return [results[place] for place in good], rows[np.array(good, dtype=np.int64)], list(corrupt.found.items())


def parallel(work: Callable[[int], Any], count: int, threads: int = THREADS, ahead: int = 256) -> Iterable[Any]:
    """`work(0)`, `work(1)`, … in order, by threads that keep at most `ahead` results waiting."""
    pool = ThreadPoolExecutor(threads)
    try:
        jobs = (pool.submit(work, index) for index in range(count))
        waiting = deque(islice(jobs, ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(islice(jobs, 1))
            yield result
    finally:  # also where the one who asks has seen enough
        pool.shutdown(cancel_futures=True)


def class_order(names: Iterable[str]) -> list[str]:
    """By name; by number where all names are numbers."""
    distinct = sorted(set(names))
    return sorted(distinct, key=int) if all(n.isdecimal() for n in distinct) else distinct


def unreadable(error: OSError) -> str:
    return "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"


def data_folder(data_dir: str | Path | None) -> Path:
    """Where named data sets live: as asked, else $VITKIT_DATA, else the user's cache."""
    if chosen := data_dir or os.environ.get("VITKIT_DATA"):
        return Path(chosen).expanduser()
    return cache_folder() / "data"


def cache_folder() -> Path:
    """Where what can be had again at some cost is kept: $VITKIT_CACHE, else the user's cache."""
    if chosen := os.environ.get("VITKIT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitkit"

"""The one pipeline that reads and decodes images: threads read chunks of a split, and results come in order.

An image that cannot be read or decoded gives a `ReadFailure` in its place. Callers count failures with a
`CorruptionBudget` and leave these images out; nothing is substituted. The same files fail in every run, so runs stay
reproducible.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vitkit.data.dataset import ImageSource, RawImage, ReadFailure, Split
from vitkit.errors import ConfigError, CorruptImageError, DataError
from vitkit.runtime.threads import THREADS, threaded_map

CORRUPT_LIMIT = 0.01
CORRUPT_LIMIT_OPTIONS = "`vitkit train --set corrupt_limit=FRACTION`, `--corrupt-limit FRACTION` elsewhere"
CHUNK = 32  # images that one thread reads at once: shards answer many requests faster than one by one
AHEAD = 256  # images that are decoded in advance

Convert = Callable[[RawImage, str], Any]  # (image, name) → result; raises CorruptImageError
Progress = Callable[[int, int], None]  # (done, total)


class CorruptionBudget:
    """Counts unreadable images, and raises `DataError` when they exceed the fraction `limit` of `total`."""

    def __init__(self, total: int, limit: float = CORRUPT_LIMIT) -> None:
        if not 0 <= limit <= 1:
            raise ConfigError(f"corrupt limit {limit:g}: expected a fraction from 0 to 1 ({CORRUPT_LIMIT_OPTIONS})")
        self.total, self.limit = total, limit
        self._found: dict[str, ReadFailure] = {}

    @property
    def failures(self) -> list[ReadFailure]:
        return list(self._found.values())

    def __contains__(self, failure: ReadFailure) -> bool:
        return failure.name in self._found

    def add(self, *failures: ReadFailure) -> None:
        """Count the images that failed, each once. Raise `DataError` above the limit."""
        self._found |= {failure.name: failure for failure in failures}
        if len(self._found) > self.limit * self.total:
            raise DataError(
                f"{len(self._found):,} of {self.total:,} images cannot be read, more than the limit of "
                f"{self.limit:.2%}; the first: {self.failures[0]} (`vitkit inspect` lists them; to train or evaluate "
                f"without them: {CORRUPT_LIMIT_OPTIONS})"
            )


def read_images(
    images: ImageSource, indices: np.ndarray, convert: Convert, threads: int = THREADS, ahead: int = AHEAD
) -> Iterator[Any]:
    """Yield `convert(image, name)`, or a `ReadFailure`, for each image of `indices`, in this order."""
    chunk = CHUNK if len(indices) > CHUNK * threads else 1

    def convert_one(index: int, image: RawImage | ReadFailure) -> Any:
        if isinstance(image, ReadFailure):
            return image
        try:
            return convert(image, images.name(index))
        except CorruptImageError as error:
            return ReadFailure.of(error)

    def read_chunk(start: int) -> list[Any]:
        rows = indices[start : start + chunk]
        return [convert_one(int(i), image) for i, image in zip(rows, images.read_many(rows), strict=True)]

    for results in threaded_map(read_chunk, range(0, len(indices), chunk), threads, max(ahead // chunk, threads)):
        yield from results


def read_split(
    split: Split,
    convert: Convert,
    corrupt_limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    threads: int = THREADS,
) -> tuple[list[Any], Split, list[ReadFailure]]:
    """Convert every image; return the results, the split without unreadable images, and the failures."""
    results, readable, failures = read_rows(split, np.arange(len(split)), convert, corrupt_limit, progress, threads)
    return results, split.subset(readable) if failures else split, failures


def read_rows(
    split: Split,
    rows: np.ndarray,
    convert: Convert,
    corrupt_limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    threads: int = THREADS,
) -> tuple[list[Any], np.ndarray, list[ReadFailure]]:
    """Convert the images `rows` of a split. Return the results, the readable rows, and the failures.

    Images are read in storage order and returned in the order of `rows`. `corrupt_limit` is a fraction of the whole
    split.
    """
    order = split.images.storage_order(rows)
    budget, results = CorruptionBudget(len(split), corrupt_limit), dict[int, Any]()
    stream = read_images(split.images, rows[order], convert, threads)
    for done, (position, result) in enumerate(zip(order.tolist(), stream, strict=True), 1):
        if isinstance(result, ReadFailure):
            budget.add(result)
        else:
            results[position] = result
        if progress:
            progress(done, len(rows))
    readable = sorted(results)
    return [results[i] for i in readable], rows[np.array(readable, dtype=np.int64)], budget.failures

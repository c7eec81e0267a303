"""Read and decode images by threads, in order; count those that cannot be read."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any

import numpy as np

from vitkit.data.dataset import RawImage, Split
from vitkit.errors import ConfigError, CorruptImageError, DataError

CORRUPT_LIMIT = 0.01
CORRUPT_LIMIT_OPTIONS = "--set corrupt_limit=SHARE when training, --corrupt-limit SHARE elsewhere"
READ_CHUNK = 32  # images that one thread asks a store for at once
THREADS = 8  # they wait for the disk, or decode with Python's lock released

Progress = Callable[[int, int], None]  # (done, of all)


class CorruptionBudget:
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
                f"{CORRUPT_LIMIT_OPTIONS})"
            )


def read_split(
    split: Split,
    convert: Callable[[RawImage, str], Any],
    limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    threads: int = THREADS,
) -> tuple[list[Any], Split, list[tuple[str, str]]]:
    """Every image once through `convert(encoded, name)`: the results, the split of the good ones, what is bad and why.

    Above `limit` it is an error; nothing is put in the place of what is left out.
    """
    results, good, bad = read_rows(split, np.arange(len(split)), convert, limit, progress, threads)
    return results, split.subset(good) if bad else split, bad


def read_rows(
    split: Split,
    rows: np.ndarray,
    convert: Callable[[RawImage, str], Any],
    limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    threads: int = THREADS,
) -> tuple[list[Any], np.ndarray, list[tuple[str, str]]]:
    """The same for these rows of it: the results, the rows of the good ones, what is bad. `limit` is of the split.

    Read in the order in which they lie on the disk; returned in the order of `rows`.
    """
    from vitkit.data.shards.reader import read_many, reading_order  # they build on the types above

    order = reading_order(split.images, rows)
    together = READ_CHUNK if len(rows) > READ_CHUNK * threads else 1

    def some(block: int) -> list[Any]:
        indices = rows[order[block * together : (block + 1) * together]]
        return [one(int(i), encoded) for i, encoded in zip(indices, read_many(split.images, indices), strict=True)]

    def one(index: int, encoded: RawImage | CorruptImageError) -> Any:
        if isinstance(encoded, CorruptImageError):
            return encoded
        try:
            return convert(encoded, split.images.name(index))
        except CorruptImageError as error:
            return error

    corrupt, results = CorruptionBudget(len(split), limit), dict[int, Any]()
    blocks = threaded_map(some, -(-len(rows) // together), threads, ahead=max(256 // together, threads))
    for done, (place, result) in enumerate(zip(order.tolist(), chain.from_iterable(blocks), strict=True), 1):
        if isinstance(result, CorruptImageError):
            corrupt.add(result)
        else:
            results[place] = result
        if progress:
            progress(done, len(rows))
    good = sorted(results)
    return [results[place] for place in good], rows[np.array(good, dtype=np.int64)], list(corrupt.found.items())


def threaded_map(work: Callable[[int], Any], count: int, threads: int = THREADS, ahead: int = 256) -> Iterable[Any]:
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

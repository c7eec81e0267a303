"""Which images of a split can be decoded: found out before the first step, and remembered.

The order of samples is a function of the list of readable images, so it has to be complete before training starts;
a file that turned out bad in the first epoch would move all that come after it. What was decoded whole is kept in the
cache, by path, size and time of change of a file, or by the content of an image inside of a table: the next run, or a
resumed one, looks only at what is new. Bad images are not kept: they are few, and are tried again each time.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from vitkit.atomic import sha256, write_atomic
from vitkit.data.dataset import FileImages, ImageSource, ImageSubset, RawImage, Split
from vitkit.data.decode import MAX_PIXELS
from vitkit.data.pipeline import CORRUPT_LIMIT, Progress, read_rows, threaded_map
from vitkit.data.shards.reader import Shard, ShardImages, unwrap_subsets
from vitkit.data.shards.storage import is_remote
from vitkit.errors import CorruptImageError, WorkError
from vitkit.runtime.cache import cache_folder


class ReadabilityCache:
    """The images of a data set that were found whole before, each as a digest of 64 bits."""

    def __init__(self, data: str) -> None:
        """`data`: as the user calls it. Another version of the decoder knows nothing."""
        judge = f"{Path(data).expanduser().absolute()}\n{PIL.__version__}\n{MAX_PIXELS}"
        self.path = cache_folder() / "filter_readable" / hashlib.sha256(judge.encode()).hexdigest()[:32]
        self.digests = _read(self.path)

    def add(self, digests: np.ndarray) -> None:
        """Kept on the disk at once, where it lets us: a cache is not worth an error."""
        self.digests = np.union1d(self.digests, digests)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, self.digests.tobytes())
        except (OSError, WorkError):
            return


def filter_readable(
    split: Split,
    check: Callable[[RawImage, str], Any],
    limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    known: ReadabilityCache | None = None,
    trust: bool = False,
) -> tuple[Split, list[tuple[str, str]]]:
    """The part of a split that `check(encoded, name)` (`Preprocess.check_decodable`) accepts, and what it rejects.

    `trust`: what was decoded when it was packed need not be again, while its shard is what it was.
    """
    sure = _as_packed(split.images, known) if trust else np.zeros(len(split), bool)
    rest = np.flatnonzero(~sure)
    digests = _digests(split.images, rest) if known else np.zeros(len(rest), np.uint64)
    unseen = (digests == 0) | ~np.isin(digests, known.digests) if known else np.ones(len(rest), bool)
    new = rest[unseen]
    _, good, bad = read_rows(split, new, check, limit, progress)
    if known and len(good):
        known.add(digests[unseen][np.isin(new, good)])
    if not bad:
        return split, bad
    rows = np.ones(len(split), dtype=bool)
    rows[np.setdiff1d(new, good)] = False
    return split.subset(np.flatnonzero(rows)), bad


def _digests(images: ImageSource, rows: np.ndarray) -> np.ndarray:
    """(rows,) uint64."""
    return np.fromiter(threaded_map(lambda i: _digest(images, int(rows[i])), len(rows)), np.uint64, len(rows))


def _digest(images: ImageSource, index: int) -> int:
    """0 where there is nothing to be known by: it is looked at each time."""
    if isinstance(images, ImageSubset):
        return _digest(images.images, int(images.indices[index]))
    try:
        if isinstance(images, ShardImages):
            shard = images.shards[images.rows.shard[index]]
            if shard.stored is None:
                return 0
            content = f"{shard.stored.state}\0{shard.stored.size}\0{images.rows.place[index]}".encode()
        elif isinstance(images, FileImages):
            path = os.path.abspath(images.paths[index])
            state = os.stat(path)
            content = f"{path}\0{state.st_size}\0{state.st_mtime_ns}".encode(errors="surrogateescape")
        else:
            encoded = images[index]
            content = encoded if isinstance(encoded, bytes) else f"{encoded.shape}".encode() + encoded.tobytes()
    except (OSError, CorruptImageError):
        return 0
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") or 1


def _as_packed(images: ImageSource, known: ReadabilityCache | None) -> np.ndarray:
    """(N,) bool: which images lie in a shard that has not changed since it was packed.

    One that is here is read through and its SHA-256 computed; of one elsewhere the size must do, and every image is
    checked by its own sum when it comes.
    """
    found, rows = unwrap_subsets(images)
    if not isinstance(found, ShardImages) or not found.packed:
        return np.zeros(len(images), bool)
    good = np.fromiter(threaded_map(lambda i: _unchanged(found.shards[i], known), len(found.shards)), bool)
    if known:
        known.add(np.array([_shard_digest(s) for s, fine in zip(found.shards, good, strict=True) if fine], np.uint64))
    whole = good[found.rows.shard]
    return whole if rows is None else whole[rows]


def _unchanged(shard: Shard, known: ReadabilityCache | None) -> bool:
    if not shard.whole or is_remote(shard.path) or (known and _shard_digest(shard) in known.digests):
        return shard.whole
    return sha256(Path(shard.path)) == shard.sha256


def _shard_digest(shard: Shard) -> int:
    content = f"{shard.stored and shard.stored.state}\0{shard.size}\0{shard.sha256}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _read(path: Path) -> np.ndarray:
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    return np.frombuffer(content[: len(content) // 8 * 8], np.uint64)

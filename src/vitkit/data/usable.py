"""Which images of a split can be decoded: found out before the first step, and remembered.

The order of samples is a function of the list of usable images, so the list has to be whole before training starts; a
file that turned out bad in the first epoch would move all that come after it. What was decoded whole is kept in the
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

from vitkit.data.decode import MAX_PIXELS
from vitkit.data.source import (
    CORRUPT_LIMIT,
    Encoded,
    Files,
    Images,
    Progress,
    Split,
    Subset,
    cache_folder,
    parallel,
    read_some,
)
from vitkit.errors import CorruptImageError, WorkError
from vitkit.files import write_atomic


class Known:
    """The images of a data set that were found whole before, each as a digest of 64 bits."""

    def __init__(self, data: str) -> None:
        """`data`: as the user calls it. Another version of the decoder knows nothing."""
        judge = f"{Path(data).expanduser().absolute()}\n{PIL.__version__}\n{MAX_PIXELS}"
        self.path = cache_folder() / "usable" / hashlib.sha256(judge.encode()).hexdigest()[:32]
        self.digests = _read(self.path)

    def add(self, digests: np.ndarray) -> None:
        """Kept on the disk at once, where it lets us: a cache is not worth an error."""
        self.digests = np.union1d(self.digests, digests)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, self.digests.tobytes())
        except (OSError, WorkError):
            return


def usable(
    split: Split,
    check: Callable[[Encoded, str], Any],
    limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    known: Known | None = None,
) -> tuple[Split, list[tuple[str, str]]]:
    """The part of a split that `check(encoded, name)`, such as `Preprocess.check`, can take, and what it cannot."""
    digests = _digests(split.images) if known else np.zeros(len(split), np.uint64)
    new = np.flatnonzero(~np.isin(digests, known.digests)) if known else np.arange(len(split))
    _, good, bad = read_some(split, new, check, limit, progress)
    if known and len(good):
        known.add(digests[good])
    if not bad:
        return split, bad
    rows = np.ones(len(split), dtype=bool)
    rows[np.setdiff1d(new, good)] = False
    return split.subset(np.flatnonzero(rows)), bad


def _digests(images: Images) -> np.ndarray:
    """(N,) uint64."""
    return np.fromiter(parallel(lambda index: _digest(images, index), len(images)), np.uint64, len(images))


def _digest(images: Images, index: int) -> int:
    """0 where there is nothing to be known by: it is looked at each time."""
    if isinstance(images, Subset):
        return _digest(images.images, int(images.indices[index]))
    try:
        if isinstance(images, Files):
            path = os.path.abspath(images.paths[index])
            state = os.stat(path)
            content = f"{path}\0{state.st_size}\0{state.st_mtime_ns}".encode(errors="surrogateescape")
        else:
            encoded = images[index]
            content = encoded if isinstance(encoded, bytes) else f"{encoded.shape}".encode() + encoded.tobytes()
    except (OSError, CorruptImageError):
        return 0
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") or 1


def _read(path: Path) -> np.ndarray:
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    return np.frombuffer(content[: len(content) // 8 * 8], np.uint64)

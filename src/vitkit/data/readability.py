"""Find the readable images of a split before training starts, and cache the result.

Sample order depends on the list of readable images. A file that turned out unreadable in the first epoch would shift
all samples after it, so the list has to be complete before the first step. Images that were decoded are cached by path,
size and modification time of the file, or by content for images in a table. The next run, or a resumed one, checks only
new ones. Unreadable images are not cached: they are few, and are tried again each time.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from vitkit.atomic import sha256
from vitkit.data.dataset import FileImages, ImageSource, ImageSubset, RawImage, ReadFailure, Split, unwrap_subsets
from vitkit.data.decode import MAX_PIXELS
from vitkit.data.decode_pipeline import CORRUPT_LIMIT, Progress, read_rows
from vitkit.data.shards.index import Shard
from vitkit.data.shards.reader import ShardImages
from vitkit.data.shards.storage import is_remote
from vitkit.errors import CorruptImageError
from vitkit.runtime.cache_dir import cache_folder, write_cache_file
from vitkit.runtime.threads import threaded_map


class ReadabilityCache:
    """The images of a data set that were decoded before, each as a digest of 64 bits."""

    def __init__(self, data: str, value_range: tuple[float, float] | None = None) -> None:
        """Open the cache of `data`, the path or name that the user gave, for this version of the decoder.

        A `value_range` has a cache of its own, because it cannot be applied to every image.
        """
        key = f"{Path(data).expanduser().absolute()}\n{PIL.__version__}\n{MAX_PIXELS}"
        key += f"\n{value_range}" if value_range else ""
        self.path = cache_folder() / "usable" / hashlib.sha256(os.fsencode(key)).hexdigest()[:32]
        try:
            content = self.path.read_bytes()
        except OSError:
            content = b""
        self.digests = np.frombuffer(content[: len(content) // 8 * 8], np.uint64)

    def add(self, digests: np.ndarray) -> None:
        self.digests = np.union1d(self.digests, digests)
        write_cache_file(self.path, self.digests.tobytes())


def filter_readable(
    split: Split,
    check: Callable[[RawImage, str], Any],
    corrupt_limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
    cache: ReadabilityCache | None = None,
    trust_packed: bool = False,
) -> tuple[Split, list[ReadFailure]]:
    """Return the split of the images that `check(image, name)` accepts, and the failures.

    `check` is `Preprocess.check_decodable`, for example. With `trust_packed`, images in unchanged shards of `vitkit
    pack` are not checked, because packing decoded them.
    """
    trusted = _in_unchanged_shards(split.images, cache) if trust_packed else np.zeros(len(split), bool)
    rows = np.flatnonzero(~trusted)
    digests = _digests(split.images, rows) if cache else np.zeros(len(rows), np.uint64)
    is_new = (digests == 0) | ~np.isin(digests, cache.digests) if cache else np.ones(len(rows), bool)
    new = rows[is_new]
    _, readable, failures = read_rows(split, new, check, corrupt_limit, progress)
    if cache and len(readable):
        cache.add(digests[is_new][np.isin(new, readable)])
    if not failures:
        return split, failures
    keep = np.ones(len(split), dtype=bool)
    keep[np.setdiff1d(new, readable)] = False
    return split.subset(np.flatnonzero(keep)), failures


def _digests(images: ImageSource, rows: np.ndarray) -> np.ndarray:
    """Return a digest per row, uint64."""
    return np.fromiter(threaded_map(lambda row: _digest(images, int(row)), rows), np.uint64, len(rows))


def _digest(images: ImageSource, index: int) -> int:
    """Return a digest of the image's content or file; 0 if it cannot be read, so that it is checked in every run."""
    if isinstance(images, ImageSubset):
        return _digest(images.images, int(images.indices[index]))
    try:
        if isinstance(images, ShardImages):
            stat = images.shards[images.samples.shard[index]].stat
            if stat is None:
                return 0
            content = f"{stat.state}\0{stat.size}\0{images.samples.offset[index]}".encode()
        elif isinstance(images, FileImages):
            path = os.path.abspath(images.paths[index])
            file = os.stat(path)
            content = f"{path}\0{file.st_size}\0{file.st_mtime_ns}".encode(errors="surrogateescape")
        else:
            image = images[index]
            content = image if isinstance(image, bytes) else f"{image.shape}".encode() + image.tobytes()
    except (OSError, CorruptImageError):
        return 0
    return _digest64(content) or 1


def _in_unchanged_shards(images: ImageSource, cache: ReadabilityCache | None) -> np.ndarray:
    """Return a mask of the images whose shard has not changed since it was packed.

    The SHA-256 of a local shard is compared. For a remote shard only the size is, and every image is checked by its
    CRC-32 when it is read.
    """
    found, rows = unwrap_subsets(images)
    if not isinstance(found, ShardImages) or not found.packed:
        return np.zeros(len(images), bool)
    unchanged = np.fromiter(threaded_map(lambda shard: _is_unchanged(shard, cache), found.shards), bool)
    if cache:
        digests = [_shard_digest(s) for s, same in zip(found.shards, unchanged, strict=True) if same]
        cache.add(np.array(digests, np.uint64))
    mask = unchanged[found.samples.shard]
    return mask if rows is None else mask[rows]


def _is_unchanged(shard: Shard, cache: ReadabilityCache | None) -> bool:
    if not shard.has_packed_size or is_remote(shard.path) or (cache and _shard_digest(shard) in cache.digests):
        return shard.has_packed_size
    return sha256(Path(shard.path)) == shard.sha256


def _shard_digest(shard: Shard) -> int:
    return _digest64(f"{shard.stat and shard.stat.state}\0{shard.size}\0{shard.sha256}".encode())


def _digest64(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")

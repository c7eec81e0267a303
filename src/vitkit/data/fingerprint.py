"""What a data set is, in one number: so that a run can say what it was trained on.

The fingerprint covers which image content is in which split under which class name. It leaves out file names and order:
a folder and the parquet file it was packed into have the same one.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitkit.data.dataset import (
    CONTENT_LIMIT,
    ArrayImages,
    Dataset,
    FileImages,
    ImageSource,
    ImageSubset,
    RawImage,
    Split,
)
from vitkit.data.pipeline import threaded_map
from vitkit.data.shards.reader import ShardImages
from vitkit.errors import CorruptImageError

STAMP_BYTES = 16
END_BYTES = 64 * 1024  # of a larger file, its length, beginning and end stand for it: compressed data differ there
UNCOMPRESSED = (b"BM", b"II", b"MM")  # how BMP and TIFF begin, where pixels may lie as they are: those are read whole


def fingerprint(dataset: Dataset) -> str:
    total = hashlib.sha256()
    for name in sorted(dataset.splits):
        total.update(f"{name} {fingerprint_split(dataset.splits[name], dataset.class_names)}\n".encode())
    return total.hexdigest()


def fingerprint_split(split: Split, class_names: Sequence[str]) -> str:
    """Above `CONTENT_LIMIT` images: every label, and the content of that many images at even distances."""
    total = hashlib.sha256(f"{len(split)} images\n".encode())
    counts = np.bincount(split.labels, minlength=len(class_names))
    for name, count in sorted((n, int(c)) for n, c in zip(class_names, counts, strict=True) if c):
        total.update(f"{len(name)} {name} {count}\n".encode())
    if len(split) > CONTENT_LIMIT and split.hashes is None:
        split = split.subset(np.linspace(0, len(split) - 1, CONTENT_LIMIT).astype(np.int64))
    stamps = split.hashes if split.hashes is not None else content_hashes(split.images)
    rows = (f"{class_names[k]} {s.tobytes().hex()}\n" for k, s in zip(split.labels, stamps, strict=True))
    for row in sorted(rows):
        total.update(row.encode())
    return total.hexdigest()


def content_hashes(images: ImageSource) -> np.ndarray:
    """(N, 16) bytes, one content_hash per image. Equal content, equal content_hash."""

    def one(index: int) -> bytes:
        return content_hash(images, index)

    # For arrays a thread costs more than the hash.
    inner = images.images if isinstance(images, ImageSubset) else images
    ready = isinstance(inner, ArrayImages)
    joined = b"".join(map(one, range(len(images))) if ready else threaded_map(one, len(images)))
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, STAMP_BYTES)


def content_hash(images: ImageSource, index: int) -> bytes:
    if isinstance(images, ImageSubset):
        return content_hash(images.images, int(images.indices[index]))
    try:
        if isinstance(images, FileImages):
            return _digest(*_ends(Path(images.paths[index])))
        if isinstance(images, ShardImages) and (known := images.stored_hash(index)):
            return known
        return hash_content(images[index])
    except (OSError, CorruptImageError):  # there is no content: its name stands for it, and reading it will say why
        return _digest(0, images.name(index).encode())


def hash_content(encoded: RawImage) -> bytes:
    return _digest(*_parts(encoded))


def _parts(encoded: RawImage) -> tuple[int, bytes]:
    if isinstance(encoded, np.ndarray):
        content = f"{encoded.shape} ".encode() + encoded.tobytes()
        return len(content), content
    if len(encoded) <= 2 * END_BYTES or encoded.startswith(UNCOMPRESSED):
        return len(encoded), encoded
    return len(encoded), encoded[:END_BYTES] + encoded[-END_BYTES:]


def _ends(path: Path) -> tuple[int, bytes]:
    """The same of a file, without reading what lies between."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        first = file.read(END_BYTES)
        if size <= 2 * END_BYTES or first.startswith(UNCOMPRESSED):
            return size, first + file.read()
        file.seek(size - END_BYTES)
        return size, first + file.read()


def _digest(length: int, content: bytes) -> bytes:
    return hashlib.sha256(b"%d " % length + content).digest()[:STAMP_BYTES]

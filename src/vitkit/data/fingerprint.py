"""Hash image content, and combine the hashes of a split into its fingerprint.

A run records the fingerprint of its data set. It covers which image content is in which split under which class name.
File names, formats and order do not matter: a folder and the parquet file packed from it have the same fingerprint.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HASH_BYTES = 16
END_BYTES = 64 * 1024  # a larger file is hashed by its length, beginning and end: compressed data differ there
UNCOMPRESSED = (b"BM", b"II", b"MM")  # BMP and TIFF may store pixels uncompressed: those files are hashed completely


def hash_content(image: bytes | np.ndarray) -> bytes:
    """Return 16 bytes that are equal for equal content."""
    if isinstance(image, np.ndarray):
        content = f"{image.shape} ".encode() + image.tobytes()
        return _digest(len(content), content)
    if len(image) <= 2 * END_BYTES or image.startswith(UNCOMPRESSED):
        return _digest(len(image), image)
    return _digest(len(image), image[:END_BYTES] + image[-END_BYTES:])


def hash_file(path: Path) -> bytes:
    """Return `hash_content` of a file, reading only the parts that are hashed."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        first = file.read(END_BYTES)
        if size > 2 * END_BYTES and not first.startswith(UNCOMPRESSED):
            file.seek(size - END_BYTES)
        return _digest(size, first + file.read())


def hash_name(name: str) -> bytes:
    """Return the hash that stands for an image whose content cannot be read."""
    return _digest(0, os.fsencode(name))


def fingerprint_split(labels: np.ndarray, class_names: Sequence[str], rows: np.ndarray, hashes: np.ndarray) -> str:
    """Return the SHA-256 of all labels of a split and of the content hashes of `rows`."""
    total = hashlib.sha256(f"{len(labels)} images\n".encode())
    counts = np.bincount(labels, minlength=len(class_names))
    for name, count in sorted((n, int(c)) for n, c in zip(class_names, counts, strict=True) if c):
        total.update(f"{len(name)} {name} {count}\n".encode())
    for line in sorted(f"{class_names[k]} {h.tobytes().hex()}\n" for k, h in zip(labels[rows], hashes, strict=True)):
        total.update(line.encode())
    return total.hexdigest()


def image_keys(hashes: np.ndarray) -> np.ndarray:
    """Return the first 8 bytes of each content hash as uint64, sorted. A model folder stores those of its training."""
    return np.unique(_keys(hashes))


def find_images(hashes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return a mask of the content hashes (N, 16) whose keys are among `keys`."""
    return np.isin(_keys(hashes), keys)


def _keys(hashes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(hashes[:, :8]).view("<u8")[:, 0].astype(np.uint64)


def _digest(length: int, content: bytes) -> bytes:
    return hashlib.sha256(b"%d " % length + content).digest()[:HASH_BYTES]

"""Find duplicate images: equal bytes, equal pixels, or nearly the same picture.

Near duplicates (another JPEG quality or size, slightly brighter) are found in two steps. A perceptual hash, the signs
of the lowest frequencies, finds candidates; thumbnails decide. The hash alone would match all blank walls with each
other. Thumbnails alone would need a comparison of all pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

Kind = Literal["bytes", "pixels", "near"]

FREQUENCIES = 8
THUMB = 32
DETAIL = 16  # the side at which thumbnails are compared
BANDS = (11, 11, 11, 11, 10, 10)  # bits: the hash in six parts
DISTANCE = 2 * len(BANDS) - 1  # two hashes at most this far apart differ in at most one bit of some part
CORRELATION = 0.96  # on CIFAR-10 nearly all pairs above are known duplicates, and many below are not
FLAT = 3.0  # thumbnails with a smaller standard deviation have no structure: their mean levels are compared instead
BLOCK = 1024

# The lowest rows of the discrete cosine transform of THUMB values
_COSINES = np.cos(np.pi * np.arange(FREQUENCIES)[:, None] * (2 * np.arange(THUMB)[None, :] + 1) / (2 * THUMB))


def thumbnail(image: Image.Image) -> np.ndarray:
    """Return (32, 32) grey levels of the image, squashed into a square."""
    return np.asarray(image.convert("L").resize((THUMB, THUMB), Image.Resampling.BOX))


def perceptual_hash(thumb: np.ndarray) -> int:
    """Return 64 bits: which of the 8×8 lowest frequencies are above their median. The mean level is ignored."""
    frequencies = np.rint(_COSINES @ thumb.astype(np.float64) @ _COSINES.T).ravel()  # exactly 0 for a blank image
    frequencies[0] = 0
    bits = frequencies > np.median(frequencies)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def near_duplicate_pairs(hashes: np.ndarray, thumbs: np.ndarray) -> np.ndarray:
    """Return (P, 2) indices of images that look the same. `hashes` (N,) uint64, `thumbs` (N, 32, 32) uint8."""
    if len(hashes) < 2:
        return np.empty((0, 2), np.int64)
    step = THUMB // DETAIL
    small = thumbs.reshape(-1, DETAIL, step, DETAIL, step).mean((2, 4), dtype=np.float32).reshape(len(thumbs), -1)
    level, deviation = small.mean(1), small.std(1)
    small = (small - level[:, None]) / np.maximum(deviation, 1e-9)[:, None]

    def alike(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        blank = (deviation[i] < FLAT) & (deviation[j] < FLAT)
        correlation = np.einsum("pd,pd->p", small[i], small[j]) / small.shape[1]
        return np.where(blank, np.abs(level[i] - level[j]) < FLAT, correlation > CORRELATION)

    found = [pairs[alike(*pairs.T)] for pairs in _candidates(hashes)]
    return np.unique(np.concatenate([np.empty((0, 2), np.int64), *found]), axis=0)


def _candidates(hashes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield pairs within `DISTANCE` bits in blocks, each pair at least once.

    Only images whose hashes agree in one part, up to one bit, are compared: a few percent of all pairs for 100,000
    images.
    """
    shift = 0
    for width in BANDS:
        keys = (hashes >> np.uint64(shift)) & np.uint64(2**width - 1)
        shift += width
        order = np.argsort(keys, kind="stable")
        values, starts = np.unique(keys[order], return_index=True)
        members = dict(zip(values.tolist(), np.split(order, starts[1:]), strict=True))
        for key, rows in members.items():
            near = [key ^ (1 << bit) for bit in range(width)]
            others = [rows, *(members[n] for n in near if n > key and n in members)]
            yield from _within_distance(hashes, rows, np.concatenate(others))


def _within_distance(hashes: np.ndarray, rows: np.ndarray, others: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the pairs of `rows` and `others` within `DISTANCE`. `others` begins with `rows`, whose pairs come once."""
    for first in range(0, len(rows), BLOCK):
        part, rest = rows[first : first + BLOCK], others[first:]
        apart = np.bitwise_count(hashes[part][:, None] ^ hashes[rest][None, :])
        i, j = np.nonzero(np.triu(apart <= DISTANCE, 1))
        for start in range(0, len(i), BLOCK * 64):  # bounds the memory for thumbnails
            chunk = slice(start, start + BLOCK * 64)
            yield np.sort(np.stack([part[i[chunk]], rest[j[chunk]]], axis=1), axis=1)


@dataclass(frozen=True)
class Group:
    """Indices of duplicate images. `kind` is the weakest kind of equality among them."""

    kind: Kind
    members: tuple[int, ...]


def group_duplicates(
    byte_digests: list[bytes],
    pixel_digests: list[bytes],
    hashes: np.ndarray,
    thumbs: np.ndarray,
    comparable: np.ndarray,
) -> list[Group]:
    """Return all groups of duplicates, the largest first. Near duplicates are searched among `comparable` (N,) only."""
    parent = list(range(len(byte_digests)))  # a union-find forest

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for digests in (byte_digests, pixel_digests):
        first: dict[bytes, int] = {}
        for i, digest in enumerate(digests):
            parent[root(i)] = root(first.setdefault(digest, i))
    heads = np.array(sorted({root(i) for i in np.flatnonzero(comparable).tolist()}), dtype=np.int64)
    for i, j in heads[near_duplicate_pairs(hashes[heads], thumbs[heads])].tolist():
        parent[root(i)] = root(j)
    members: dict[int, list[int]] = {}
    for i in range(len(parent)):
        members.setdefault(root(i), []).append(i)

    def kind(indices: list[int]) -> Kind:
        if len({byte_digests[i] for i in indices}) == 1:
            return "bytes"
        return "pixels" if len({pixel_digests[i] for i in indices}) == 1 else "near"

    groups = [Group(kind(indices), tuple(indices)) for indices in members.values() if len(indices) > 1]
    return sorted(groups, key=lambda g: (-len(g.members), g.members))

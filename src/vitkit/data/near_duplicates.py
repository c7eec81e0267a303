"""Which images show the same: the same bytes, the same pixels, or nearly the same picture.

Near copies (another JPEG quality, another size, a little brighter) are found in two steps: a perceptual hash, the signs
of the lowest frequencies of the picture, finds candidates; thumbnails decide. The hash alone would take every blank
wall for every other one; the thumbnails alone would have to be compared all with all.
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
DISTANCE = 2 * len(BANDS) - 1  # two hashes this far apart differ in at most one bit of some part
CORRELATION = 0.96  # on CIFAR-10, where copies are known, nearly all pairs above are copies and many below are not
FLAT = 3.0  # a thumbnail with less deviation than this shows nothing: its level is compared instead
BLOCK = 1024


def _cosines() -> np.ndarray:
    """The lowest rows of the discrete cosine transform of `THUMB` values."""
    k, n = np.arange(FREQUENCIES)[:, None], np.arange(THUMB)[None, :]
    return np.cos(np.pi * k * (2 * n + 1) / (2 * THUMB))


_COSINES = _cosines()


def thumbnail(image: Image.Image) -> np.ndarray:
    """(32, 32) grey levels, the whole picture squashed into a square."""
    return np.asarray(image.convert("L").resize((THUMB, THUMB), Image.Resampling.BOX))


def perceptual_hash(thumb: np.ndarray) -> int:
    """64 bits: which of the 8×8 lowest frequencies lie above their median. The level itself, the first, is no news."""
    frequencies = np.rint(_COSINES @ thumb.astype(np.float64) @ _COSINES.T).ravel()  # a blank picture has none
    frequencies[0] = 0
    bits = frequencies > np.median(frequencies)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def near_pairs(hashes: np.ndarray, thumbs: np.ndarray) -> np.ndarray:
    """(P, 2) indices of images that look the same. `hashes` (N,) uint64, `thumbs` (N, 32, 32) uint8."""
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
    """Pairs within `DISTANCE` bits, block by block, each pair at least once.

    Only images whose hashes agree in one part, but for one bit, are compared: for 100,000 images a few percent of all.
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
    """`others` begins with `rows`: of two rows, each pair is taken once."""
    for first in range(0, len(rows), BLOCK):
        part, rest = rows[first : first + BLOCK], others[first:]
        apart = np.bitwise_count(hashes[part][:, None] ^ hashes[rest][None, :])
        i, j = np.nonzero(np.triu(apart <= DISTANCE, 1))
        for start in range(0, len(i), BLOCK * 64):  # the thumbnails of all pairs at once need not fit into memory
            chunk = slice(start, start + BLOCK * 64)
            yield np.sort(np.stack([part[i[chunk]], rest[j[chunk]]], axis=1), axis=1)


@dataclass(frozen=True)
class Group:
    """Images that show the same. `kind` is the weakest likeness that holds them together."""

    kind: Kind
    members: tuple[int, ...]


def group(
    byte_digests: list[bytes],
    pixel_digests: list[bytes],
    hashes: np.ndarray,
    thumbs: np.ndarray,
    comparable: np.ndarray,
) -> list[Group]:
    """All groups of two and more, the largest first. Near copies are looked for among the `comparable` (N,) alone."""
    parent = list(range(len(byte_digests)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for digests in (byte_digests, pixel_digests):
        first: dict[bytes, int] = {}
        for i, digest in enumerate(digests):
            parent[root(i)] = root(first.setdefault(digest, i))
    heads = np.array(
        sorted({root(i) for i in np.flatnonzero(comparable).tolist()}), dtype=np.int64
    )  # one of all copies
    for i, j in heads[near_pairs(hashes[heads], thumbs[heads])].tolist():
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

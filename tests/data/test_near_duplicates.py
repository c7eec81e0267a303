"""Duplicates are found however they were made, other images are not, and 100,000 images take seconds."""

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from vitkit.data.near_duplicates import (
    DISTANCE,
    _candidates,
    group_duplicates,
    near_duplicate_pairs,
    perceptual_hash,
    thumbnail,
)


def photograph(seed: int, side: int = 96) -> Image.Image:
    """Blobs of many sizes: pictures with structure, all different."""
    rng = np.random.default_rng(seed)
    total = np.zeros((side, side, 3))
    for cells in (2, 3, 5, 8, 13):
        noise = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        total += np.asarray(noise.resize((side, side), Image.Resampling.BICUBIC), float)
    return Image.fromarray(np.uint8(total / 5))


def jpeg(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def measure(images: list[Image.Image]) -> tuple[np.ndarray, np.ndarray]:
    thumbs = np.stack([thumbnail(i) for i in images])
    return np.array([perceptual_hash(t) for t in thumbs], dtype=np.uint64), thumbs


CHANGES = {
    "JPEG quality 30": lambda i: jpeg(i, 30),
    "half the size": lambda i: i.resize((48, 48), Image.Resampling.BICUBIC),
    "twice the size": lambda i: i.resize((192, 192), Image.Resampling.BICUBIC),
    "brighter": lambda i: ImageEnhance.Brightness(i).enhance(1.2),
    "less contrast": lambda i: ImageEnhance.Contrast(i).enhance(0.7),
    "grey": lambda i: i.convert("L"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_duplicates_are_found_and_nothing_else(change: str) -> None:
    originals = [photograph(i) for i in range(30)]
    pairs = near_duplicate_pairs(*measure(originals + [CHANGES[change](i) for i in originals]))
    expected = {(i, i + 30) for i in range(30)}
    found = set(map(tuple, pairs.tolist()))
    assert found <= expected
    assert len(found) >= 29


def test_different_images_are_not_near() -> None:
    assert len(near_duplicate_pairs(*measure([photograph(i) for i in range(400)]))) == 0


def test_equal_hashes_of_different_pictures_do_not_make_them_near() -> None:
    _, thumbs = measure([photograph(i) for i in range(20)])
    assert len(near_duplicate_pairs(np.zeros(20, np.uint64), thumbs)) == 0


def test_blank_pictures_are_compared_by_their_level() -> None:
    levels = [10, 11, 100, 200, 201]
    assert near_duplicate_pairs(*measure([Image.new("L", (64, 64), v) for v in levels])).tolist() == [[0, 1], [3, 4]]


def test_candidates_are_all_pairs_within_the_distance() -> None:
    rng = np.random.default_rng(0)
    centres = rng.integers(0, 2**63, 40, dtype=np.uint64)
    hashes = []
    for centre in centres.tolist():  # families whose members lie 0…14 bits apart
        for flips in range(0, 15, 2):
            value = centre
            for bit in rng.choice(64, flips, replace=False).tolist():
                value ^= 1 << bit
            hashes.append(value)
    values = np.array(hashes, dtype=np.uint64)
    apart = np.bitwise_count(values[:, None] ^ values[None, :])
    expected = set(zip(*(a.tolist() for a in np.nonzero(np.triu(apart <= DISTANCE, 1))), strict=True))
    found = {tuple(p) for block in _candidates(values) for p in block.tolist()}
    assert found == expected
    assert len(expected) > 300


@pytest.mark.slow
def test_a_hundred_thousand_images() -> None:
    rng = np.random.default_rng(0)
    thumbs = rng.integers(0, 256, (100_000, 32, 32), dtype=np.uint8)
    thumbs[99_999] = thumbs[7]
    hashes = rng.integers(0, 2**63, 100_000, dtype=np.uint64)
    hashes[99_999] = hashes[7] ^ np.uint64(0b111)
    assert near_duplicate_pairs(hashes, thumbs).tolist() == [[7, 99_999]]


def test_the_kind_of_a_group_is_its_weakest_equality() -> None:
    images = [photograph(i) for i in (0, 0, 1, 1, 2, 2, 3)]
    hashes, thumbs = measure(images)
    content = [b"a", b"a", b"b", b"c", b"d", b"e", b"f"]
    pixels = [b"A", b"A", b"B", b"B", b"D", b"E", b"F"]
    everywhere = np.ones(7, bool)
    found = group_duplicates(content, pixels, hashes, thumbs, everywhere)
    assert {g.members: g.kind for g in found} == {(0, 1): "bytes", (2, 3): "pixels", (4, 5): "near"}
    without = group_duplicates(content, pixels, hashes, thumbs, ~everywhere)
    assert {g.members for g in without} == {(0, 1), (2, 3)}


def test_a_near_duplicate_joins_the_group_of_equal_files() -> None:
    hashes, thumbs = measure([photograph(i) for i in (1, 1, 0, 0, 0)])
    digests = [b"x", b"y", b"a", b"a", b"b"]
    found = group_duplicates(digests, digests, hashes, thumbs, np.ones(5, bool))
    assert [(g.members, g.kind) for g in found] == [((2, 3, 4), "near"), ((0, 1), "near")]  # the largest first

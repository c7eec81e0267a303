"""Images and splits."""

from pathlib import Path

import numpy as np
import pytest

from vitkit.data.dataset import ArrayImages, FileImages, ImageSubset, ReadFailure, Split, hash_images, unwrap_subsets
from vitkit.errors import CorruptImageError


def test_subsets_of_subsets_name_read_and_hash_the_right_images(tmp_path: Path) -> None:
    for i in (0, 1, 2, 4):
        (tmp_path / f"{i}.png").write_bytes(bytes([i]))
    files = FileImages([str(tmp_path / f"{i}.png") for i in range(5)])
    part = ImageSubset(ImageSubset(files, np.array([4, 3, 1])), np.array([1, 2, 0]))
    assert [Path(part.name(i)).name for i in range(len(part))] == ["3.png", "1.png", "4.png"]
    missing = ReadFailure(str(tmp_path / "3.png"), "there is no such file")
    assert part.read_many(np.array([2, 0])) == [b"\4", missing]
    with pytest.raises(CorruptImageError, match=r"3\.png: there is no such file"):
        part[0]
    images, rows = unwrap_subsets(part)
    assert images is files
    assert rows is not None
    assert rows.tolist() == [3, 1, 4]
    assert np.array_equal(hash_images(part), hash_images(files)[[3, 1, 4]])


def test_equal_images_have_equal_hashes() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    pixels[4] = pixels[1]
    hashes = hash_images(ArrayImages(pixels, "x"))
    assert hashes.shape == (6, 16)
    assert len(np.unique(hashes, axis=0)) == 5
    assert np.array_equal(hashes[4], hashes[1])


def test_a_subset_of_a_split_keeps_labels_and_hashes_together() -> None:
    pixels = np.arange(5, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8)
    images = ArrayImages(pixels, "x")
    split = Split(images, np.arange(5) * 10, hash_images(images)).subset(np.array([3, 0]))
    assert split.labels.tolist() == [30, 0]
    assert np.array_equal(split.content_hashes(), hash_images(split.images))
    assert [split.images.name(i) for i in range(2)] == ["x[3]", "x[0]"]


def test_a_failure_can_be_raised_and_printed() -> None:
    failure = ReadFailure("a.jpg", "is empty")
    assert str(failure) == "a.jpg: is empty"
    assert ReadFailure.of(failure.error()) == failure

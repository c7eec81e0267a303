"""Images are read in order, and failures are counted."""

from pathlib import Path

import numpy as np
import pytest

from vitkit.data.dataset import FileImages, RawImage, ReadFailure, Split
from vitkit.data.decode_pipeline import CHUNK, CorruptionBudget, read_images, read_rows, read_split
from vitkit.errors import ConfigError, CorruptImageError, DataError


def number(image: RawImage, name: str) -> int:
    if image == b"bad":
        raise CorruptImageError(name, "is bad")
    return int(image)


@pytest.fixture
def split(tmp_path: Path) -> Split:
    """20 files that hold their numbers; 3 is missing and 7 cannot be converted."""
    for i in range(20):
        (tmp_path / f"{i}").write_bytes(b"bad" if i == 7 else b"%d" % i)
    (tmp_path / "3").unlink()
    return Split(FileImages([str(tmp_path / f"{i}") for i in range(20)]), np.arange(20))


@pytest.mark.parametrize("count", [1, 20, 3 * CHUNK])  # one by one, and in chunks
def test_results_come_in_order_with_failures_in_their_place(split: Split, count: int) -> None:
    indices = np.random.default_rng(0).integers(0, 20, count)
    results = list(read_images(split.images, indices, number, threads=2))
    assert len(results) == count
    for index, result in zip(indices, results, strict=True):
        if index in (3, 7):
            assert result == ReadFailure(split.images.name(index), {3: "there is no such file", 7: "is bad"}[index])
        else:
            assert result == index


def test_a_split_is_returned_without_its_failures(split: Split) -> None:
    seen: list[tuple[int, int]] = []
    results, readable, failures = read_split(split, number, 0.1, lambda *state: seen.append(state))
    assert results == readable.labels.tolist() == [i for i in range(20) if i not in (3, 7)]
    assert [Path(failure.name).name for failure in failures] == ["3", "7"]
    assert seen[-1] == (20, 20)
    with pytest.raises(DataError, match="2 of 20 images"):
        read_split(split, number, 0.09)


def test_rows_are_counted_against_the_whole_split(split: Split) -> None:
    results, rows, failures = read_rows(split, np.array([9, 3, 0]), number, 0.05)
    assert (results, rows.tolist(), len(failures)) == ([9, 0], [9, 0], 1)


def test_the_error_counts_all_known_failures() -> None:
    budget = CorruptionBudget(50, 0.01)
    with pytest.raises(DataError, match=r"20 of 50 images .* the first: 0: torn .*--set corrupt_limit=FRACTION"):
        budget.add(*(ReadFailure(str(i), "torn") for i in range(20)))


def test_a_limit_that_is_no_fraction_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"corrupt limit 2: expected a fraction .*--corrupt-limit FRACTION"):
        CorruptionBudget(10, 2)

"""Images that were decoded once are not checked again while they are unchanged."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.data.test_decode import colour_of_16_bits
from vitkit.data.dataset import FileImages, Split
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.data.readers.parquet import ParquetImages


class Counting:
    """`Preprocess.check_decodable`, recording which images it checked."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    def __call__(self, encoded: Any, name: str) -> None:
        self.checked.append(Path(name).name)
        Preprocess(size=8).check_decodable(encoded, name)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def split(tmp_path: Path) -> Split:
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for i, path in enumerate(paths):
        Image.new("RGB", (9, 9), (i, 2 * i, 0)).save(path)
    paths[4].write_bytes(b"no image")
    return Split(FileImages([str(p) for p in paths]), np.arange(6))


def run_filter(split: Split, data: str = "data") -> tuple[list[str], list[int]]:
    """Return the checked names and the readable labels of a new run."""
    check = Counting()
    kept, bad = filter_readable(split, check, 0.5, cache=ReadabilityCache(data))
    assert [Path(failure.name).name for failure in bad] == [f"{i}.png" for i in split.labels if i not in kept.labels]
    return sorted(check.checked), kept.labels.tolist()


def test_the_second_run_checks_only_unreadable_images(split: Split) -> None:
    assert run_filter(split) == ([f"{i}.png" for i in range(6)], [0, 1, 2, 3, 5])
    assert run_filter(split) == (["4.png"], [0, 1, 2, 3, 5])


def test_a_subset_in_another_order_uses_the_cache(split: Split) -> None:
    run_filter(split)
    assert run_filter(split.subset(np.array([5, 4, 0]))) == (["4.png"], [5, 0])


def test_another_data_set_has_its_own_cache(split: Split) -> None:
    run_filter(split)
    assert len(run_filter(split, "other")[0]) == 6


def test_a_changed_file_is_checked_again(split: Split, tmp_path: Path) -> None:
    run_filter(split)
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(whole[:-20] + bytes(20))  # of the same size
    os.utime(tmp_path / "1.png", ns=(0, 12345))
    (tmp_path / "4.png").write_bytes(whole)
    (tmp_path / "2.png").unlink()
    assert run_filter(split) == (["1.png", "4.png"], [0, 3, 4, 5])


def test_images_in_a_table_are_cached_by_content(split: Split) -> None:
    pa = pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")
    contents = [split.images[i] for i in range(6)]

    def table(rows: list[bytes | None]) -> Split:
        names = [f"{i}.png" for i in range(len(rows))]
        return Split(ParquetImages(pa.array(rows, pa.large_binary()), names), np.arange(len(rows)))

    run_filter(table(contents))
    contents[3] = contents[3][:-30]  # the same name, other bytes
    assert run_filter(table(contents)) == (["3.png", "4.png"], [0, 1, 2, 5])


def test_a_damaged_or_read_only_cache_is_no_error(split: Split, cache: Path) -> None:
    run_filter(split)
    (stored,) = (cache / "usable").iterdir()
    stored.write_bytes(stored.read_bytes()[:-3])
    assert len(run_filter(split)[0]) == 2, "one record was lost, and one image is unreadable"
    stored.unlink()
    cache.joinpath("usable").rmdir()
    cache.joinpath("usable").write_text("a file in place of the folder", encoding="utf-8")
    assert len(run_filter(split)[0]) == len(run_filter(split)[0]) == 6


def test_images_that_were_read_without_a_range_are_checked_again_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.png").write_bytes(colour_of_16_bits())
    split = Split(FileImages([str(tmp_path / "a.png")]), np.zeros(1, np.int64))
    for preprocess, failed in ((Preprocess(), 0), (Preprocess(range=(0, 4095)), 1), (Preprocess(), 0)):
        cache = ReadabilityCache(str(tmp_path), preprocess.range)
        assert len(filter_readable(split, preprocess.check_decodable, 1.0, cache=cache)[1]) == failed

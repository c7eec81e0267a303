"""What was found whole is not decoded again, as long as it is the same."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitkit.data.dataset import FileImages, Split
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.data.readers.parquet import ParquetImages


class Counting:
    """`Preprocess.check_decodable`, and whom it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, encoded: Any, name: str) -> None:
        self.asked.append(Path(name).name)
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


def look(split: Split, data: str = "data") -> tuple[list[str], list[int]]:
    """(whom it was asked about, what is filter_readable), by a run of its own."""
    check = Counting()
    kept, bad = filter_readable(split, check, 0.5, cache=ReadabilityCache(data))
    assert [Path(failure.name).name for failure in bad] == [f"{i}.png" for i in split.labels if i not in kept.labels]
    return sorted(check.asked), kept.labels.tolist()


def test_the_second_run_looks_only_at_what_was_bad(split: Split) -> None:
    assert look(split) == ([f"{i}.png" for i in range(6)], [0, 1, 2, 3, 5])
    assert look(split) == (["4.png"], [0, 1, 2, 3, 5])


def test_a_part_in_another_order_is_known_too(split: Split) -> None:
    look(split)
    assert look(split.subset(np.array([5, 4, 0]))) == (["4.png"], [5, 0])


def test_another_data_set_knows_nothing(split: Split) -> None:
    look(split)
    assert len(look(split, "other")[0]) == 6


def test_a_file_that_was_changed_is_looked_at_again(split: Split, tmp_path: Path) -> None:
    look(split)
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(whole[:-20] + bytes(20))  # of the same size
    os.utime(tmp_path / "1.png", ns=(0, 12345))
    (tmp_path / "4.png").write_bytes(whole)
    (tmp_path / "2.png").unlink()
    assert look(split) == (["1.png", "4.png"], [0, 3, 4, 5])


def test_images_inside_of_a_table_are_known_by_their_content(split: Split) -> None:
    pa = pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")
    contents = [split.images[i] for i in range(6)]

    def table(rows: list[bytes | None]) -> Split:
        names = [f"{i}.png" for i in range(len(rows))]
        return Split(ParquetImages(pa.array(rows, pa.large_binary()), names), np.arange(len(rows)))

    look(table(contents))
    contents[3] = contents[3][:-30]  # the same name, other bytes
    assert look(table(contents)) == (["3.png", "4.png"], [0, 1, 2, 5])


def test_a_cache_that_cannot_be_written_or_is_damaged_costs_time_only(split: Split, cache: Path) -> None:
    look(split)
    (stored,) = (cache / "usable").iterdir()
    stored.write_bytes(stored.read_bytes()[:-3])
    assert len(look(split)[0]) == 2, "one record was torn, and one image is bad"
    stored.unlink()
    cache.joinpath("usable").rmdir()
    cache.joinpath("usable").write_text("a file where the folder should be")
    assert len(look(split)[0]) == len(look(split)[0]) == 6

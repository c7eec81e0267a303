"""Columns, splits and labels of tables and file names."""

from pathlib import Path

import numpy as np
import pytest

from vitkit.data.dataset import FileImages
from vitkit.data.readers.columns import check_paths, find_column, parse_labels, parse_split, split_of_file
from vitkit.errors import DataError, UnknownNameError


def test_the_first_wanted_column_is_taken() -> None:
    assert find_column(["label", "path", "img"], ("image", "img", "path"), "x.csv") == "img"
    with pytest.raises(UnknownNameError, match=r"'fin'; did you mean 'fine'\? \(x\.csv has fine, label\)"):
        find_column(["fine", "label"], ("fin",), "x.csv")
    with pytest.raises(UnknownNameError, match="has no columns"):
        find_column([], ("image",), "x.csv")


@pytest.mark.parametrize(
    ("name", "split"), [("Valid ", "val"), ("dev", "val"), ("training", "train"), ("TEST", "test")]
)
def test_split_names_have_synonyms(name: str, split: str) -> None:
    assert parse_split(name, "row 1") == split


def test_an_unknown_split_is_an_error_that_says_where() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown split 'middle'.*row 7"):
        parse_split("middle", "row 7")


@pytest.mark.parametrize(
    ("path", "split"),
    [("validation-00000-of-00005.parquet", "val"), ("a/test/0.parquet", "test"), ("a/tests/0.tar", "train")],
)
def test_the_split_of_a_file_is_its_first_word_or_its_folder(path: str, split: str) -> None:
    assert split_of_file(Path(path)) == split


def test_labels_are_numbers_only_if_all_are() -> None:
    numbers = parse_labels(["3", "01"])
    assert isinstance(numbers, np.ndarray)
    assert numbers.tolist() == [3, 1]
    for names in (["3", "x"], ["1.5"], ["-1"], []):
        assert parse_labels(names) == names


def test_paths_are_wrong_only_if_no_file_exists(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    some = FileImages([str(tmp_path / "a.png"), str(tmp_path / "b.png")])
    assert check_paths(some, tmp_path / "x.csv") is some
    with pytest.raises(DataError, match=r"x\.csv: none of its images exists, such as .*b\.png"):
        check_paths(FileImages([str(tmp_path / "b.png")]), tmp_path / "x.csv")
